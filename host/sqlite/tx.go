package sqlite

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/pelton-run/pelton/host"
)

// tx is the transaction of one invocation, on the database's writer.
type tx struct {
	d    *Database
	w    *connection
	lost bool // SQLite undid it; nothing of it counts

	onCommit []func() // what is known of the file, once it is so
}

var _ host.Tx = (*tx)(nil)

// Exec runs a statement of the guest.
func (t *tx) Exec(ctx context.Context, query string, args []any) (host.Result, error) {
	if t.lost {
		return host.Result{}, host.ErrTxLost
	}
	s, err := t.w.prepared(ctx, query)
	if err != nil {
		return host.Result{}, t.fail(ctx, err)
	}
	if err := t.w.interrupts.start(ctx); err != nil {
		return host.Result{}, t.fail(ctx, err)
	}
	r, err := s.Exec(args...)
	t.w.interrupts.stop()
	if err != nil {
		return host.Result{}, t.fail(ctx, err)
	}
	var result host.Result
	if result.LastInsertID, err = r.LastInsertId(); err == nil && !definesSchema(query) {
		result.RowsAffected, err = r.RowsAffected()
	}
	return result, err
}

// ExecMany implements host.Tx. The rows lie in a savepoint of their own, so that
// those before a refused one go too.
func (t *tx) ExecMany(ctx context.Context, query string, width int, args []any) (host.Result, error) {
	if t.lost {
		return host.Result{}, host.ErrTxLost
	}
	s, err := t.w.prepared(ctx, query)
	if err != nil {
		return host.Result{}, t.fail(ctx, err)
	}
	if err := t.step("SAVEPOINT pelton_many"); err != nil {
		return host.Result{}, err
	}
	result, row, err := t.each(ctx, s, width, args)
	if err == nil {
		return result, t.step("RELEASE pelton_many")
	}
	refusal := t.fail(ctx, err)
	if !t.lost {
		if err := t.step("ROLLBACK TO pelton_many"); err != nil {
			return host.Result{}, err
		}
		if err := t.step("RELEASE pelton_many"); err != nil {
			return host.Result{}, err
		}
	}
	return host.Result{}, host.Errorf(host.ErrnoOf(refusal), "row %d: %v", row, refusal)
}

// each runs a statement row after row, and says with an error which row, from 1,
// it was.
func (t *tx) each(ctx context.Context, s *sql.Stmt, width int, args []any) (sum host.Result, row int, err error) {
	if err := t.w.interrupts.start(ctx); err != nil {
		return sum, 1, err
	}
	defer t.w.interrupts.stop()
	for row = 1; len(args) > 0; row++ {
		if err := ctx.Err(); err != nil { // an interrupt between two rows finds no statement
			return sum, row, err
		}
		r, err := s.Exec(args[:width]...)
		if err != nil {
			return sum, row, err
		}
		n, err := r.RowsAffected()
		if err != nil {
			return sum, row, err
		}
		sum.RowsAffected += n
		if sum.LastInsertID, err = r.LastInsertId(); err != nil {
			return sum, row, err
		}
		args = args[width:]
	}
	return sum, row, nil
}

// definesSchema reports whether a statement changes no rows by its kind: SQLite
// then still has the count of the one before.
func definesSchema(query string) bool {
	first := strings.Fields(query[:min(len(query), 64)])
	return len(first) > 0 && slices.Contains([]string{"create", "drop", "analyze", "reindex"}, strings.ToLower(first[0]))
}

// Query reads within the transaction, and sees what it wrote.
func (t *tx) Query(ctx context.Context, query string, args []any, limit host.RowLimit) (*host.Rows, error) {
	if t.lost {
		return nil, host.ErrTxLost
	}
	s, err := t.w.prepared(ctx, query)
	if err != nil {
		return nil, t.fail(ctx, err)
	}
	answer, err := t.read(ctx, s, args, limit)
	if err != nil {
		return nil, t.fail(ctx, err)
	}
	return answer, nil
}

func (t *tx) read(ctx context.Context, s *sql.Stmt, args []any, limit host.RowLimit) (*host.Rows, error) {
	if err := t.w.interrupts.start(ctx); err != nil {
		return nil, err
	}
	defer t.w.interrupts.stop()
	rows, err := s.Query(args...)
	if err != nil {
		return nil, err
	}
	return collect(ctx, rows, limit)
}

// fail looks after an error whether the transaction still stands: SQLite undoes
// it by itself when a write is interrupted, the disk is full, or a statement
// says OR ROLLBACK. Going on would commit each later statement by itself.
func (t *tx) fail(ctx context.Context, err error) error {
	t.w.note(ctx, err)
	refusal := sqlError(ctx, t.w.policy, err)
	if t.w.control("BEGIN") == nil { // it could not begin inside a transaction
		t.lost = true
		if t.w.control("ROLLBACK") != nil {
			t.w.broken = true
		}
	}
	return refusal
}

// step runs one of the host's own statements within the transaction.
func (t *tx) step(statement string) error {
	if t.lost {
		return host.ErrTxLost
	}
	if err := t.w.control(statement); err != nil {
		// Nothing may be committed now: what it was to undo would be in it.
		t.w.broken, t.lost = true, true
		t.w.control("ROLLBACK") // the connection is replaced, whatever it says
		return host.Errorf(host.Unavailable, "%s on database %s: %v", statement, t.d.name, err)
	}
	return nil
}

func (t *tx) Savepoint(context.Context) error { return t.step("SAVEPOINT pelton") }
func (t *tx) Release(context.Context) error   { return t.step("RELEASE pelton") }

// Restore undoes what was done since the savepoint and removes it.
func (t *tx) Restore(context.Context) error {
	if err := t.step("ROLLBACK TO pelton"); err != nil {
		return err
	}
	return t.step("RELEASE pelton")
}

// Commit implements host.Tx: it makes the transaction durable and gives the writer back. It is not
// broken off when ctx ends: half a commit would help nobody.
func (t *tx) Commit(context.Context) error {
	defer t.d.give()
	if t.lost {
		return host.ErrTxLost
	}
	host.CrashPoint("before commit", "")
	if err := t.w.control("COMMIT"); err != nil {
		t.w.broken = true
		refusal := sqlError(context.Background(), nil, err)
		if host.ErrnoOf(refusal) == host.Conflict { // a constraint that is looked at last
			return host.Errorf(host.Conflict, "commit on database %s: %v", t.d.name, err)
		}
		return host.Errorf(host.Unavailable, "commit on database %s: %v", t.d.name, err)
	}
	host.CrashPoint("after commit", "")
	for _, f := range t.onCommit {
		f()
	}
	return nil
}

// Lost implements host.Tx.
func (t *tx) Lost() bool { return t.lost }

// Undo implements host.Tx.
func (t *tx) Undo(context.Context) error {
	t.onCommit = nil
	if t.lost {
		t.lost = false // there is nothing left to undo
	} else if err := t.step("ROLLBACK"); err != nil {
		return err
	}
	return t.step("BEGIN IMMEDIATE")
}

// Rollback undoes the transaction and gives the writer back. SQLite rolls some
// failed transactions back itself, so a second rollback that finds none is fine;
// the connection is replaced to be sure.
func (t *tx) Rollback() error {
	defer t.d.give()
	if !t.lost && t.w.control("ROLLBACK") != nil {
		t.w.broken = true
	}
	return nil
}
