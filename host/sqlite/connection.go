package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/pelton-run/pelton/manifests"
)

// connection is the one connection that writes, with its prepared statements.
// Whoever took the database's turn uses it alone.
type connection struct {
	db         *sql.DB
	conn       *sql.Conn
	policy     *policy
	interrupts *interrupter
	statements map[string]*sql.Stmt // the guests', by their text
	controls   map[string]*sql.Stmt // the host's own; a guest's text never finds them
	oneOff     *sql.Stmt            // a long one, not kept
	broken     bool                 // to be replaced before the next use
}

func (w *connection) close() error {
	w.interrupts.release()
	for _, s := range w.statements {
		s.Close()
	}
	for _, s := range w.controls {
		s.Close()
	}
	return errors.Join(w.conn.Close(), w.db.Close())
}

// prepared returns the statement of a text, from the cache if it was used before.
func (w *connection) prepared(ctx context.Context, query string) (*sql.Stmt, error) {
	if s, ok := w.statements[query]; ok {
		return s, nil
	}
	if err := singleStatement(query); err != nil {
		return nil, err
	}
	w.policy.drops = false
	s, err := w.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	if len(query) > maxCached {
		w.closeLater(s)
		return s, nil
	}
	if len(w.statements) >= MaxStatements {
		for _, old := range w.statements {
			old.Close()
		}
		clear(w.statements)
	}
	w.statements[query] = s
	return s, nil
}

// maxCached bounds the text of a statement that is kept prepared, in bytes:
// longer ones have their values written into them and do not come again.
const maxCached = 4 << 10

// closeLater keeps a statement that is not cached until the next such one.
func (w *connection) closeLater(s *sql.Stmt) {
	if w.oneOff != nil {
		w.oneOff.Close()
	}
	w.oneOff = s
}

// control runs one of the host's own statements. It has no deadline: BEGIN
// waits at most for the busy timeout, and the others must not be broken off.
func (w *connection) control(statement string) error {
	return w.policy.asHost(func() error {
		s, err := w.prepareControl(statement)
		if err != nil {
			return err
		}
		_, err = s.Exec()
		return err
	})
}

// prepareControl returns one of the host's own statements; it is called as host.
func (w *connection) prepareControl(statement string) (*sql.Stmt, error) {
	s, ok := w.controls[statement]
	if !ok {
		var err error
		if s, err = w.conn.PrepareContext(context.Background(), statement); err != nil {
			return nil, err
		}
		w.controls[statement] = s
	}
	return s, nil
}

// note marks the connection when an error means that it cannot be used again.
func (w *connection) note(ctx context.Context, err error) {
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || ctx.Err() != nil {
		w.broken = true
	}
}

func (w *connection) migrate(ctx context.Context, migrations []manifests.Migration) error {
	const table = `CREATE TABLE IF NOT EXISTS _pelton_migrations (
		name TEXT PRIMARY KEY, digest TEXT NOT NULL, applied TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP) STRICT`
	if _, err := w.conn.ExecContext(ctx, table); err != nil {
		return err
	}
	for _, m := range migrations {
		sum := sha256.Sum256([]byte(m.SQL))
		digest := hex.EncodeToString(sum[:])
		var applied string
		err := w.conn.QueryRowContext(ctx, `SELECT digest FROM _pelton_migrations WHERE name = ?`, m.Name).Scan(&applied)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			if err := w.apply(ctx, m, digest); err != nil {
				return fmt.Errorf("apply %s: %w", m.Name, err)
			}
		case err != nil:
			return err
		case applied != digest:
			return fmt.Errorf("%s was changed after it was applied; undo the change and add a new file instead", m.Name)
		}
	}
	return nil
}

func (w *connection) apply(ctx context.Context, m manifests.Migration, digest string) error {
	t, err := w.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer t.Rollback() // after a commit it does nothing
	if _, err := t.ExecContext(ctx, m.SQL); err != nil {
		return err
	}
	if _, err := t.ExecContext(ctx, `INSERT INTO _pelton_migrations (name, digest) VALUES (?, ?)`, m.Name, digest); err != nil {
		return err
	}
	return t.Commit()
}
