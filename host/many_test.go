package host

import (
	"context"
	"testing"
)

// manyTx counts the rows that reach it.
type manyTx struct {
	Tx
	rows int
}

func (t *manyTx) Known(context.Context, string, []*Message) ([]bool, error) { return nil, nil }
func (t *manyTx) Lost() bool                                                { return false }
func (t *manyTx) ExecMany(_ context.Context, _ string, width int, args []any) (Result, error) {
	t.rows += len(args) / width
	return Result{RowsAffected: int64(len(args) / width)}, nil
}

type manyDB struct {
	Database
	tx *manyTx
}

func (d manyDB) Begin(context.Context) (Tx, error) { return d.tx, nil }

// Rows are whole ones, and count as statements.
func TestExecManyIsCounted(t *testing.T) {
	tx := &manyTx{}
	c := NewCall(t.Context(), "f", &Grants{Databases: map[string]Database{"db": manyDB{tx: tx}, "other": manyDB{}}, Write: "db"},
		Limits{SQLCalls: 10}, nil, []*Message{{Subject: "a"}})
	if _, err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		database    string
		width, args int
		errno       Errno
		rows        int // that have reached the transaction by then
	}{
		{"db", 2, 6, 0, 3},
		{"db", 0, 6, Invalid, 3},
		{"db", -1, 6, Invalid, 3},
		{"db", 4, 6, Invalid, 3},
		{"db", 1, 0, Invalid, 3},
		{"other", 1, 1, Denied, 3},
		{"unknown", 1, 1, Denied, 3},
		{"db", 1, 7, 0, 10},
		{"db", 1, 1, Limit, 10},
	} {
		_, err := c.ExecMany(BatchID+1, tt.database, "INSERT", tt.width, make([]any, tt.args))
		if got := ErrnoOf(err); err != nil && got != tt.errno || err == nil && tt.errno != 0 || tx.rows != tt.rows {
			t.Errorf("%d arguments as rows of %d in %s = %v with %d rows, want errno %d and %d rows", tt.args, tt.width, tt.database, err, tx.rows, tt.errno, tt.rows)
		}
	}
	if _, err := c.ExecMany(99, "db", "INSERT", 1, make([]any, 1)); ErrnoOf(err) != Invalid {
		t.Errorf("for a delivery that is not there = %v, want invalid", err)
	}
}
