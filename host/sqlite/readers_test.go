package sqlite

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
)

// Readers with more statements than are kept, beside each other, have the answers of
// their own.
func TestManyStatements(t *testing.T) {
	d := open(t, "CREATE TABLE a (v INTEGER)")
	var group sync.WaitGroup
	for w := range 4 {
		group.Go(func() {
			for i := range MaxStatements {
				query := fmt.Sprintf("SELECT ? + %d", w*MaxStatements/2+i) // half of them are others' too
				rows, err := d.Query(t.Context(), query, []any{int64(i)}, wide)
				if err != nil || rows.Values[0].(int64) != int64(w*MaxStatements/2+2*i) {
					t.Errorf("%s = %v, %v", query, rows, err)
					return
				}
			}
		})
	}
	group.Wait()
	long := "SELECT '" + strings.Repeat("x", 2*maxCached) + "'"
	if rows, err := d.Query(t.Context(), long, nil, wide); err != nil || len(rows.Values[0].(string)) != 2*maxCached {
		t.Errorf("a long statement: %v", err)
	}
	if n := len(d.readers.statements); n > MaxStatements {
		t.Errorf("%d statements are kept, want at most %d", n, MaxStatements)
	}
}

// A statement that was prepared before a migration sees what it made.
func TestReadersSeeMigrations(t *testing.T) {
	d := open(t, "CREATE TABLE a (v INTEGER)")
	for i, want := range []string{"v", "v w"} {
		rows, err := d.Query(t.Context(), "SELECT * FROM a", nil, wide)
		if err != nil || strings.Join(rows.Columns, " ") != want {
			t.Errorf("columns are %v, %v; want %s", rows, err, want)
		}
		if i == 0 {
			if err := d.Migrate(t.Context(), []manifests.Migration{{Name: "more.sql", SQL: "ALTER TABLE a ADD COLUMN w TEXT"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := d.Query(t.Context(), "SELECT x FROM a", nil, wide); host.ErrnoOf(err) != host.Failed {
		t.Errorf("a column that is not there: %v, want failed", err)
	}
}
