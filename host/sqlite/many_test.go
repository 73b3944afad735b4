package sqlite

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pelton-run/pelton/host"
)

// Many rows are all there or none of them, and what was done before them stays.
func TestExecMany(t *testing.T) {
	const insert = "INSERT INTO a VALUES (?, ?)"
	for _, tt := range []struct {
		name, query string
		width       int
		args        []any
		rows, sum   int64 // what is there then, beside the first
		errno       host.Errno
		says        string
	}{
		{"three rows", insert, 2, []any{int64(1), "a", int64(2), "b", int64(3), nil}, 3, 6, 0, ""},
		{"one row", insert, 2, []any{int64(5), "a"}, 1, 5, 0, ""},
		{"one argument", "UPDATE a SET v = v + ?", 1, []any{int64(0), int64(0)}, 0, 0, 0, ""},
		{"a constraint", insert, 2, []any{int64(1), "a", int64(2), "b", int64(1), "c"}, 0, 0, host.Conflict, "row 3: sql: "},
		{"too few arguments", "INSERT INTO a VALUES (?, ?)", 1, []any{int64(1), int64(2)}, 0, 0, host.Failed, "row 1: sql: "},
		{"not permitted", "SAVEPOINT b", 1, []any{int64(1)}, 0, 0, host.Denied, "not permitted"},
		{"another end of the savepoint", "RELEASE pelton_many", 1, []any{int64(1)}, 0, 0, host.Denied, "not permitted"},
		{"no statement", "", 1, []any{int64(1)}, 0, 0, host.Invalid, "no statement"},
	} {
		d := open(t, "CREATE TABLE a (v INTEGER UNIQUE, s TEXT)")
		tx := begin(t, d)
		exec(t, tx, "INSERT INTO a VALUES (0, '')")
		r, err := tx.ExecMany(t.Context(), tt.query, tt.width, tt.args)
		if tt.errno == 0 && (err != nil || r.RowsAffected != int64(len(tt.args)/tt.width)) {
			t.Errorf("%s = %+v, %v", tt.name, r, err)
		}
		if tt.errno != 0 && (host.ErrnoOf(err) != tt.errno || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%s = %v, want errno %d and %q", tt.name, err, tt.errno, tt.says)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatalf("%s: commit: %v", tt.name, err)
		}
		if n, sum := number(t, d, "SELECT count(*) FROM a"), number(t, d, "SELECT sum(v) FROM a"); n != tt.rows+1 || sum != tt.sum {
			t.Errorf("%s: %d rows with the sum %d, want %d and %d", tt.name, n, sum, tt.rows+1, tt.sum)
		}
	}
}

// A row that has SQLite undo the whole transaction loses it, as one statement does.
func TestExecManyLost(t *testing.T) {
	d := open(t, "CREATE TABLE a (v INTEGER UNIQUE)")
	tx := begin(t, d)
	exec(t, tx, "INSERT INTO a VALUES (1)")
	if _, err := tx.ExecMany(t.Context(), "INSERT OR ROLLBACK INTO a VALUES (?)", 1, []any{int64(2), int64(1)}); host.ErrnoOf(err) != host.Conflict || !tx.Lost() {
		t.Errorf("got %v, lost %v; want a conflict that undid the transaction", err, tx.Lost())
	}
	if _, err := tx.ExecMany(t.Context(), "INSERT INTO a VALUES (?)", 1, []any{int64(3)}); err != host.ErrTxLost {
		t.Errorf("more rows = %v, want them refused", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if n := number(t, d, "SELECT count(*) FROM a"); n != 0 {
		t.Errorf("%d rows are there, want none", n)
	}
}

// The end of the context is seen between two rows that are short.
func TestExecManyCancelled(t *testing.T) {
	d := open(t, "CREATE TABLE a (v INTEGER)")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	tx, err := d.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	args := make([]any, 1<<20)
	for i := range args {
		args[i] = int64(i)
	}
	if _, err := tx.ExecMany(ctx, "INSERT INTO a VALUES (?)", 1, args); host.ErrnoOf(err) != host.Cancelled {
		t.Errorf("a million rows in 30 ms = %v, want cancelled", err)
	}
	tx.Rollback()
	if n := number(t, d, "SELECT count(*) FROM a"); n != 0 {
		t.Errorf("%d rows are there, want none", n)
	}
}
