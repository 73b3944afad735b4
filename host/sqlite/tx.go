package sqlite

import (
	"context"

	"github.com/pelton-run/pelton/host"
)

// tx is the transaction of one invocation, on the database's writer.
type tx struct {
	d *Database
	w *connection
}

var _ host.Tx = (*tx)(nil)

// Exec runs a statement of the guest.
func (t *tx) Exec(ctx context.Context, query string, args []any) (host.Result, error) {
	s, err := t.w.prepared(ctx, query)
	if err != nil {
		return host.Result{}, t.fail(ctx, err)
	}
	r, err := s.ExecContext(ctx, args...)
	if err != nil {
		return host.Result{}, t.fail(ctx, err)
	}
	var result host.Result
	if result.LastInsertID, err = r.LastInsertId(); err == nil {
		result.RowsAffected, err = r.RowsAffected()
	}
	return result, err
}

// Query reads within the transaction, and sees what it wrote.
func (t *tx) Query(ctx context.Context, query string, args []any, limit host.RowLimit) (*host.Rows, error) {
	s, err := t.w.prepared(ctx, query)
	if err != nil {
		return nil, t.fail(ctx, err)
	}
	rows, err := s.QueryContext(ctx, args...)
	if err != nil {
		return nil, t.fail(ctx, err)
	}
	return collect(ctx, rows, limit)
}

func (t *tx) fail(ctx context.Context, err error) error {
	t.w.note(ctx, err)
	return sqlError(ctx, t.w.policy, err)
}

func (t *tx) Savepoint(context.Context) error { return t.w.control("SAVEPOINT pelton") }
func (t *tx) Release(context.Context) error   { return t.w.control("RELEASE pelton") }

// Restore undoes what was done since the savepoint and removes it.
func (t *tx) Restore(context.Context) error {
	if err := t.w.control("ROLLBACK TO pelton"); err != nil {
		return err
	}
	return t.w.control("RELEASE pelton")
}

// Commit makes the transaction durable and gives the writer back. It is not
// broken off when ctx ends: half a commit would help nobody.
func (t *tx) Commit(context.Context) error {
	defer t.d.give()
	if err := t.w.control("COMMIT"); err != nil {
		t.w.broken = true
		return host.Errorf(host.Unavailable, "commit on database %s: %v", t.d.name, err)
	}
	return nil
}

// Rollback undoes the transaction and gives the writer back. SQLite rolls some
// failed transactions back itself, so a second rollback that finds none is fine;
// the connection is replaced to be sure.
func (t *tx) Rollback() error {
	defer t.d.give()
	if err := t.w.control("ROLLBACK"); err != nil {
		t.w.broken = true
	}
	return nil
}
