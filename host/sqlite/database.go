package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
)

// MaxStatements bounds the prepared statements of one connection; beyond it
// the cache begins anew.
const MaxStatements = 256

// Database is one SQLite file with one writer and several readers. It is safe
// for concurrent use. Close must be called.
type Database struct {
	name    string
	path    string
	busy    time.Duration
	turn    chan struct{} // holds the writer's place: one value when it is free
	writer  *connection
	readers *readers
	policy  *policy // of the readers, which are all guests

	outbox   *sql.DB // the host's own reader
	identity string  // set by Ready

	mu      sync.Mutex
	sources map[host.Source]*source
	sent    map[string]int64 // by function: rows of the outbox up to here are to be forgotten
}

var _ host.Database = (*Database)(nil)

// How long a transaction waits for one of another program's to end.
const (
	busy        = 10 * time.Second
	busyForeign = 30 * time.Second
)

// Open opens the database of a file, and creates file and folder if need be.
// name is what errors call it.
func Open(ctx context.Context, name, path string) (*Database, error) {
	return openFile(ctx, name, path, busy)
}

// OpenForeign opens the database of a file that other programs write to as well:
// it waits longer for them.
func OpenForeign(ctx context.Context, name, path string) (*Database, error) {
	return openFile(ctx, name, path, busyForeign)
}

func openFile(ctx context.Context, name, path string, busy time.Duration) (*Database, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create folder of database %s: %w", name, err)
	}
	d := &Database{name: name, path: path, busy: busy, turn: make(chan struct{}, 1), policy: &policy{}, sources: map[host.Source]*source{}, sent: map[string]int64{}}
	d.turn <- struct{}{}
	w, err := d.openWriter(ctx)
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", name, err)
	}
	d.writer = w
	d.readers = newReaders(sql.OpenDB(newConnector(path, busy, d.policy, url.Values{"mode": {"ro"}, "_query_only": {"1"}})))
	own := &policy{}
	own.host.Store(true)
	d.outbox = sql.OpenDB(newConnector(path, busy, own, url.Values{"mode": {"ro"}, "_query_only": {"1"}}))
	d.outbox.SetMaxOpenConns(1)
	return d, nil
}

// Close closes the file. It waits for a transaction that is open.
func (d *Database) Close() error {
	<-d.turn
	return errors.Join(d.readers.close(), d.outbox.Close(), d.writer.close())
}

// openWriter opens the connection that writes.
func (d *Database) openWriter(ctx context.Context) (*connection, error) {
	p := &policy{writer: true}
	db := sql.OpenDB(newConnector(d.path, d.busy, p, url.Values{"_journal_mode": {"WAL"}}))
	db.SetMaxOpenConns(1)
	var conn *sql.Conn
	err := p.asHost(func() (err error) {
		conn, err = db.Conn(ctx)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	interrupts, err := newInterrupter(conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close(), db.Close())
	}
	return &connection{db: db, conn: conn, policy: p, interrupts: interrupts, statements: map[string]*sql.Stmt{}, controls: map[string]*sql.Stmt{}}, nil
}

// take waits for the writer and returns it whole: one that an interrupt spoiled
// is replaced.
func (d *Database) take(ctx context.Context) (*connection, error) {
	select {
	case <-d.turn:
	case <-ctx.Done():
		return nil, host.Errorf(host.Cancelled, "wait for the writer of database %s: %v", d.name, context.Cause(ctx))
	}
	if d.writer.broken {
		d.writer.close() // it is of no further use, whatever it says
		w, err := d.openWriter(context.WithoutCancel(ctx))
		if err != nil {
			d.give()
			return nil, host.Errorf(host.Unavailable, "reopen database %s: %v", d.name, err)
		}
		d.writer = w
	}
	return d.writer, nil
}

// give lets the next one have the writer.
func (d *Database) give() {
	d.writer.interrupts.release()
	d.turn <- struct{}{}
}

// Begin takes the writer and opens a transaction that holds the write lock
// from its beginning, so that it never fails half way for another's commit.
func (d *Database) Begin(ctx context.Context) (host.Tx, error) {
	w, err := d.take(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.control("BEGIN IMMEDIATE"); err != nil {
		w.broken = true
		d.give()
		return nil, host.Errorf(host.Unavailable, "begin transaction on database %s: %v", d.name, err)
	}
	return &tx{d: d, w: w}, nil
}

// Query reads on a connection that cannot write.
func (d *Database) Query(ctx context.Context, query string, args []any, limit host.RowLimit) (*host.Rows, error) {
	rows, err := d.readers.query(ctx, query, args)
	if err != nil {
		return nil, sqlError(ctx, d.policy, err)
	}
	return collect(ctx, rows, limit)
}

// Migrate applies the migrations that this file has not had, each in a
// transaction of its own, and remembers them by name and content. A migration
// whose content changed after it was applied is an error: it would never run.
func (d *Database) Migrate(ctx context.Context, migrations []manifests.Migration) error {
	if len(migrations) == 0 {
		return nil
	}
	w, err := d.take(ctx)
	if err != nil {
		return err
	}
	defer d.give()
	return w.policy.asHost(func() error {
		if err := w.migrate(ctx, migrations); err != nil {
			return fmt.Errorf("migrate database %s: %w", d.name, err)
		}
		return nil
	})
}
