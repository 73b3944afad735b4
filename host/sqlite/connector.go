package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Limits of every connection that no manifest changes; see
// https://www.sqlite.org/limits.html.
const (
	MaxValue     = 16 << 20 // bytes of a text, a blob or a row
	MaxStatement = 1 << 20  // bytes of a statement's text
	MaxVariables = 32_766   // of a statement
	MaxPages     = 4 << 20  // of a file: 16 GiB
	MaxWAL       = 32 << 20 // bytes that the write-ahead log keeps when it is not needed
	cachePages   = 4096     // KiB of a connection's page cache
	checkpoint   = 4000     // pages in the log before they go into the file: a page that is written often goes once
)

// limits are those of sqlite3_limit.
var limits = map[int]int{
	sqlite3.SQLITE_LIMIT_LENGTH:              MaxValue,
	sqlite3.SQLITE_LIMIT_SQL_LENGTH:          MaxStatement,
	sqlite3.SQLITE_LIMIT_COLUMN:              200,
	sqlite3.SQLITE_LIMIT_EXPR_DEPTH:          200,
	sqlite3.SQLITE_LIMIT_COMPOUND_SELECT:     50,
	sqlite3.SQLITE_LIMIT_VDBE_OP:             250_000,
	sqlite3.SQLITE_LIMIT_FUNCTION_ARG:        127,
	sqlite3.SQLITE_LIMIT_ATTACHED:            0,
	sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1000,
	sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER:     MaxVariables,
	sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH:       10,
	sqlite3.SQLITE_LIMIT_WORKER_THREADS:      0,
}

// connector opens connections of a driver of our own, so that its hooks do not
// touch other users of SQLite in the process. Each connection has the policy and
// the limits, one that takes the place of another too.
type connector struct {
	driver *sqlite.Driver
	dsn    string
}

func newConnector(path string, busy time.Duration, p *policy, extra url.Values) *connector {
	q := url.Values{
		"_busy_timeout": {strconv.FormatInt(busy.Milliseconds(), 10)}, "_synchronous": {"FULL"}, "_foreign_keys": {"1"}, "_defensive": {"1"}, "_dqs": {"0"},
		"_pragma": {"trusted_schema(0)", "cell_size_check(1)", "mmap_size(0)", fmt.Sprintf("cache_size(-%d)", cachePages),
			fmt.Sprintf("max_page_count(%d)", MaxPages), fmt.Sprintf("journal_size_limit(%d)", MaxWAL),
			fmt.Sprintf("wal_autocheckpoint(%d)", checkpoint)},
	}
	for k, v := range extra {
		q[k] = v
	}
	c := &connector{driver: &sqlite.Driver{}, dsn: (&url.URL{Scheme: "file", Opaque: url.PathEscape(path), RawQuery: q.Encode()}).String()}
	c.driver.RegisterConnectionHook(func(conn sqlite.ExecQuerierContext, _ string) error {
		return conn.(sqlite.AuthorizerRegisterer).RegisterAuthorizer(p.authorize)
	})
	return c
}

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	if err := limit(ctx, conn); err != nil {
		return nil, errors.Join(fmt.Errorf("limit connection: %w", err), conn.Close())
	}
	return conn, nil
}

// Driver implements driver.Connector.
func (c *connector) Driver() driver.Driver { return c.driver }

// limit sets a connection's limits. The driver sets them only on a connection of
// database/sql, so it is lent to one for that.
func limit(ctx context.Context, conn driver.Conn) error {
	db := sql.OpenDB(lender{lent{conn}})
	defer db.Close()
	c, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	for id, most := range limits {
		if _, err := sqlite.Limit(c, id, most); err != nil {
			return err
		}
	}
	return nil
}

// lender has one connection to give.
type lender struct{ conn lent }

func (l lender) Connect(context.Context) (driver.Conn, error) { return l.conn, nil }
func (l lender) Driver() driver.Driver                        { return nil }

// lent is a connection that its borrower cannot close.
type lent struct{ driver.Conn }

func (lent) Close() error          { return nil }
func (l lent) Unwrap() driver.Conn { return l.Conn }
