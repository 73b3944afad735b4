package sdk

import (
	"context"
	"errors"
	"strconv"
)

// DB is a database that the manifest grants, by its logical name.
//
// With mode: write everything that an invocation does in it lies in one
// transaction, which the host commits before it acks the messages.
type DB struct{ name string }

// SQLite names a database.
func SQLite(name string) DB { return DB{name} }

// Result is what a statement changed.
type Result struct {
	LastInsertID int64
	RowsAffected int64
}

// Exec runs one statement. Arguments are nil, integers, bool, float64, string,
// *string, which is NULL when it is nil, or []byte.
func (d DB) Exec(ctx context.Context, query string, args ...any) (Result, error) {
	return sqlExec(ctx, d.name, query, args)
}

// ExecMany runs one statement once for each row of arguments, in one call of the
// host: many rows cost far less than as many calls. All rows are as long. When one
// is refused, its number stands in the error and none of them has happened.
// LastInsertID is that of the last row, RowsAffected the sum. Without rows
// nothing is done.
func (d DB) ExecMany(ctx context.Context, query string, rows [][]any) (Result, error) {
	if len(rows) == 0 {
		return Result{}, nil
	}
	for i, row := range rows {
		if len(row) == 0 || len(row) != len(rows[0]) {
			return Result{}, &HostError{Errno: ErrInvalid, Text: "sql: row " + strconv.Itoa(i+1) + " has " + strconv.Itoa(len(row)) + " arguments, row 1 has " + strconv.Itoa(len(rows[0]))}
		}
	}
	return sqlExecMany(ctx, d.name, query, rows)
}

// Query reads rows, all at once; they must fit the manifest's limits.
func (d DB) Query(ctx context.Context, query string, args ...any) (*Rows, error) {
	return sqlQuery(ctx, d.name, query, args)
}

// QueryRow reads the first row into dest; [ErrNoRows] if there is none.
func (d DB) QueryRow(ctx context.Context, query string, args []any, dest ...any) error {
	rows, err := d.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	if !rows.Next() {
		return ErrNoRows
	}
	return rows.Scan(dest...)
}

// Rows is the answer to a query.
type Rows struct {
	columns []string
	values  []any
	at      int // the row that Scan reads, from 1
}

// NewRows makes rows out of values, row after row, for tests.
func NewRows(columns []string, values ...any) *Rows { return &Rows{columns: columns, values: values} }

// Columns are the names of the columns.
func (r *Rows) Columns() []string { return r.columns }

// Len is the number of rows.
func (r *Rows) Len() int {
	if len(r.columns) == 0 {
		return 0
	}
	return len(r.values) / len(r.columns)
}

// Next goes to the next row, the first at first, and reports whether there is one.
func (r *Rows) Next() bool {
	if r.at >= r.Len() {
		return false
	}
	r.at++
	return true
}

// Values returns the row's values: nil, int64, float64, string or []byte.
func (r *Rows) Values() []any { return r.values[(r.at-1)*len(r.columns) : r.at*len(r.columns)] }

// Scan copies the row into pointers to int64, int, float64, string, []byte, bool
// or any. NULL leaves the zero value.
func (r *Rows) Scan(dest ...any) error {
	row := r.Values()
	if len(dest) != len(row) {
		return errors.New("scan: the row has " + strconv.Itoa(len(row)) + " columns, not " + strconv.Itoa(len(dest)))
	}
	for i, v := range row {
		if !assign(dest[i], v) {
			return errors.New("scan: column " + r.columns[i] + " does not fit its variable")
		}
	}
	return nil
}

func assign(dest, v any) bool {
	switch d := dest.(type) {
	case *any:
		*d = v
		return true
	case *int64:
		n, ok := v.(int64)
		*d = n
		return ok || v == nil
	case *int:
		n, ok := v.(int64)
		*d = int(n)
		return ok || v == nil
	case *bool:
		n, ok := v.(int64)
		*d = n != 0
		return ok || v == nil
	case *float64:
		return assignFloat(d, v)
	case *string:
		return assignString(d, v)
	case *[]byte:
		b, ok := v.([]byte)
		if s, isText := v.(string); isText {
			b, ok = []byte(s), true
		}
		*d = b
		return ok || v == nil
	}
	return false
}

func assignFloat(d *float64, v any) bool {
	switch v := v.(type) {
	case nil:
		*d = 0
	case float64:
		*d = v
	case int64:
		*d = float64(v)
	default:
		return false
	}
	return true
}

func assignString(d *string, v any) bool {
	switch v := v.(type) {
	case nil:
		*d = ""
	case string:
		*d = v
	case []byte:
		*d = string(v)
	default:
		return false
	}
	return true
}
