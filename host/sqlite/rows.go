package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/pelton-run/pelton/host"
)

// collect reads all rows, up to the limit.
func collect(ctx context.Context, rows *sql.Rows, limit host.RowLimit) (*host.Rows, error) {
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, host.Errorf(host.Failed, "read columns: %v", err)
	}
	answer := &host.Rows{Columns: columns}
	row := make([]any, len(columns))
	into := make([]any, len(columns))
	for i := range row {
		into[i] = &row[i]
	}
	var bytes int64
	for n := 0; rows.Next(); n++ {
		if n == limit.Rows {
			return nil, host.Errorf(host.TooLarge, "the query has more rows than limits.sql_rows %d", limit.Rows)
		}
		if err := rows.Scan(into...); err != nil {
			return nil, host.Errorf(host.Failed, "read row: %v", err)
		}
		for _, v := range row {
			v, size := plain(v)
			answer.Values = append(answer.Values, v)
			bytes += size
		}
		if bytes > limit.Bytes {
			return nil, host.Errorf(host.TooLarge, "the query's rows have more bytes than limits.sql_bytes %d", limit.Bytes)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, sqlError(ctx, nil, err)
	}
	return answer, nil
}

// plain turns a driver's value into one of the five that cross the border.
func plain(v any) (any, int64) {
	switch v := v.(type) {
	case string:
		return v, int64(len(v))
	case []byte:
		return v, int64(len(v))
	case bool:
		if v {
			return int64(1), 8
		}
		return int64(0), 8
	case time.Time: // a column declared DATETIME; the driver parses it
		s := v.UTC().Format(time.RFC3339Nano)
		return s, int64(len(s))
	}
	return v, 8
}

// sqlError turns an error of the driver into a refusal with the kind that a
// guest can act on.
func sqlError(ctx context.Context, p *policy, err error) error {
	var refused *host.Error
	if errors.As(err, &refused) {
		return err
	}
	if ctx.Err() != nil {
		return host.Errorf(host.Cancelled, "sql: %v", context.Cause(ctx))
	}
	if p != nil {
		if what := p.takeDenied(); what != "" {
			return host.Errorf(host.Denied, "sql: not permitted: %s", what)
		}
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return host.Errorf(host.Failed, "sql: %v", err)
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL:
		return host.Errorf(host.Unavailable, "sql: %v", err)
	case sqlite3.SQLITE_CONSTRAINT:
		return host.Errorf(host.Conflict, "sql: %v", err)
	case sqlite3.SQLITE_READONLY:
		return host.Errorf(host.Denied, "sql: %v", err)
	case sqlite3.SQLITE_TOOBIG:
		return host.Errorf(host.TooLarge, "sql: %v", err)
	}
	return host.Errorf(host.Failed, "sql: %v", err)
}

// singleStatement refuses a text with more than one statement, or none: the driver
// would run them all, and has no answer to give for none. Quotes and comments are skipped as SQLite's tokenizer
// does (https://www.sqlite.org/lang_comment.html). A semicolon inside the body
// of CREATE TRIGGER is refused too; migrations are the place for those.
func singleStatement(query string) error {
	if strings.IndexByte(query, 0) >= 0 || !utf8.ValidString(query) {
		return host.Errorf(host.Invalid, "sql: the statement holds a NUL byte, or is not UTF-8")
	}
	if onlyBlank(query) {
		return host.Errorf(host.Invalid, "sql: there is no statement")
	}
	for i := 0; i < len(query); {
		n := tokenEnd(query[i:])
		if query[i] == ';' && !onlyBlank(query[i+1:]) {
			return host.Errorf(host.Invalid, "sql: one statement a call; put several into migrations or several calls")
		}
		i += n
	}
	return nil
}

func onlyBlank(s string) bool {
	s = strings.ReplaceAll(s, "\ufeff", " ") // SQLite takes it for one
	for i := 0; i < len(s); {
		n := tokenEnd(s[i:])
		if tok := s[i : i+n]; strings.TrimSpace(tok) != "" && tok != ";" && !strings.HasPrefix(tok, "--") && !strings.HasPrefix(tok, "/*") {
			return false
		}
		i += n
	}
	return true
}

// tokenEnd returns the length of the quoted text or comment that s begins
// with, 1 for anything else.
func tokenEnd(s string) int {
	until := func(from int, end string) int {
		if i := strings.Index(s[from:], end); i >= 0 {
			return from + i + len(end)
		}
		return len(s)
	}
	switch {
	case strings.HasPrefix(s, "--"):
		return until(2, "\n")
	case strings.HasPrefix(s, "/*"):
		return until(2, "*/")
	case s[0] == '\'' || s[0] == '"' || s[0] == '`':
		return until(1, s[:1]) // a doubled quote begins a second quoted text, which ends as well
	case s[0] == '[':
		return until(1, "]")
	}
	return 1
}
