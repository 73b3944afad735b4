package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("PELTON_FOREIGN"); path != "" { // the other program of TestForeignWriter
		if err := foreign(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

var wide = host.RowLimit{Rows: 1000, Bytes: 1 << 20}

func open(t *testing.T, migrations ...string) *Database {
	t.Helper()
	d, err := Open(t.Context(), "test", filepath.Join(t.TempDir(), "a folder", "test.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	for i, sql := range migrations {
		if err := d.Migrate(t.Context(), []manifests.Migration{{Name: fmt.Sprintf("%03d.sql", i), SQL: sql}}); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func begin(t *testing.T, d *Database) host.Tx {
	t.Helper()
	tx, err := d.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func exec(t *testing.T, tx host.Tx, query string, args ...any) {
	t.Helper()
	if _, err := tx.Exec(t.Context(), query, args); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func number(t *testing.T, d *Database, query string) int64 {
	t.Helper()
	rows, err := d.Query(t.Context(), query, nil, wide)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return rows.Values[0].(int64)
}

// SQL-1: read, pause, write in parallel loses nothing and never meets a lock.
func TestParallelTransactions(t *testing.T) {
	const workers, rounds = 4, 25
	d := open(t, "CREATE TABLE n (v INTEGER); INSERT INTO n VALUES (0)")
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for range rounds {
				tx, err := d.Begin(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				rows, err := tx.Query(t.Context(), "SELECT v FROM n", nil, wide)
				if err != nil {
					t.Error(err)
				}
				time.Sleep(5 * time.Millisecond) // the pause of the case, not a wait
				if _, err := tx.Exec(t.Context(), "UPDATE n SET v = ?", []any{rows.Values[0].(int64) + 1}); err != nil {
					t.Error(err)
				}
				if err := tx.Commit(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if got := number(t, d, "SELECT v FROM n"); got != workers*rounds {
		t.Errorf("v = %d, want %d", got, workers*rounds)
	}
}

func TestSavepoints(t *testing.T) {
	d := open(t, "CREATE TABLE a (v INTEGER)")
	tx := begin(t, d)
	for i := range 3 {
		if err := tx.Savepoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		exec(t, tx, "INSERT INTO a VALUES (?)", int64(i))
		end := tx.Release
		if i == 1 {
			end = tx.Restore
		}
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := number(t, d, "SELECT sum(v) FROM a"); got != 2 {
		t.Errorf("sum = %d, want 2: the second delivery is undone, the others are not", got)
	}
	tx = begin(t, d)
	exec(t, tx, "DELETE FROM a")
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if got := number(t, d, "SELECT count(*) FROM a"); got != 2 {
		t.Errorf("count after rollback = %d, want 2", got)
	}
}

// What belongs to the host is denied, in every spelling, and the transaction
// goes on.
func TestForbidden(t *testing.T) {
	d := open(t, "CREATE TABLE a (v INTEGER)")
	tx := begin(t, d)
	defer tx.Rollback()
	for _, query := range []string{
		"COMMIT", "END", "ROLLBACK", "BEGIN", "SAVEPOINT x", "RELEASE pelton", "ROLLBACK TO pelton", "/*x*/COMMIT",
		"ATTACH DATABASE '/tmp/x.db' AS x", "ATTACH ?1 AS x", "DETACH main", "VACUUM INTO '/tmp/out.db'", "VACUUM",
		"PRAGMA journal_mode = DELETE", "PRAGMA temp_store_directory = '/tmp'", "SELECT load_extension('/tmp/e.so')",
		"CREATE TEMP TABLE x (y)", "SELECT * FROM _pelton_migrations", "DROP TABLE _pelton_migrations", "INSERT INTO _pelton_x VALUES (1)",
		"CREATE TABLE _pelton_mine (x)", "ALTER TABLE _pelton_migrations RENAME TO gone", "ALTER TABLE a RENAME TO _pelton_a",
		"SELECT * FROM sqlite_dbpage", "CREATE TRIGGER x AFTER INSERT ON _pelton_migrations BEGIN SELECT 1; END",
	} {
		if _, err := tx.Exec(t.Context(), query, nil); err == nil {
			t.Errorf("%s is permitted", query)
		}
	}
	for _, query := range []string{"SELECT 1; SELECT 2", "INSERT INTO a VALUES (1); COMMIT", "SELECT 1;;SELECT 2", "SELECT ';'; COMMIT"} {
		if _, err := tx.Exec(t.Context(), query, nil); host.ErrnoOf(err) != host.Invalid {
			t.Errorf("%s = %v, want invalid", query, err)
		}
	}
	for _, query := range []string{"SELECT 1;", "SELECT ';'", "SELECT 1; -- done;", "SELECT 'it''s; fine' /* ; */ ;"} {
		if _, err := tx.Query(t.Context(), query, nil, wide); err != nil {
			t.Errorf("%s = %v, want no error", query, err)
		}
	}
	exec(t, tx, "INSERT INTO a VALUES (1)")
}

// The host's own statements are prepared once; a guest that says the same words
// does not find them.
func TestControlsAreTheHosts(t *testing.T) {
	d := open(t, "CREATE TABLE a (v INTEGER)")
	for range 2 {
		tx := begin(t, d)
		if err := errors.Join(tx.Savepoint(t.Context()), tx.Restore(t.Context())); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"COMMIT", "BEGIN IMMEDIATE", "ROLLBACK", "SAVEPOINT pelton", "RELEASE pelton", "ROLLBACK TO pelton", "BEGIN"} {
			if _, err := tx.Exec(t.Context(), text, nil); host.ErrnoOf(err) != host.Denied {
				t.Errorf("%s = %v, want denied", text, err)
			}
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A transaction that SQLite undid is not gone on with: later statements would
// commit by themselves.
func TestLostTransaction(t *testing.T) {
	d := open(t, "CREATE TABLE a (v INTEGER UNIQUE)")
	tx := begin(t, d)
	exec(t, tx, "INSERT INTO a VALUES (1)")
	if err := tx.Savepoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "INSERT OR ROLLBACK INTO a VALUES (1)", nil); host.ErrnoOf(err) != host.Conflict {
		t.Errorf("got %v, want conflict", err)
	}
	_, execErr := tx.Exec(t.Context(), "INSERT INTO a VALUES (2)", nil)
	for what, err := range map[string]error{"exec": execErr, "release": tx.Release(t.Context()), "savepoint": tx.Savepoint(t.Context()), "commit": tx.Commit(t.Context())} {
		if !errors.Is(err, host.ErrTxLost) {
			t.Errorf("%s = %v, want it refused", what, err)
		}
	}
	if got := number(t, d, "SELECT count(*) FROM a"); got != 0 {
		t.Errorf("%d rows are there, want none", got)
	}
	tx = begin(t, d)
	exec(t, tx, "INSERT INTO a VALUES (3)")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestReadersCannotWrite(t *testing.T) {
	d := open(t, "CREATE TABLE a (v INTEGER)")
	for _, query := range []string{"INSERT INTO a VALUES (1)", "DELETE FROM a", "CREATE TABLE b (c)", "PRAGMA query_only = 0", "BEGIN", "DROP TABLE a"} {
		if _, err := d.Query(t.Context(), query, nil, wide); err == nil {
			t.Errorf("%s is permitted to a reader", query)
		}
	}
	if got := number(t, d, "SELECT count(*) FROM a"); got != 0 {
		t.Errorf("count = %d, want 0", got)
	}
}

func TestRowLimits(t *testing.T) {
	d := open(t)
	const many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, 'some text' FROM n"
	if _, err := d.Query(t.Context(), many, nil, host.RowLimit{Rows: 100, Bytes: 1 << 20}); host.ErrnoOf(err) != host.TooLarge {
		t.Errorf("endless rows = %v, want too large", err)
	}
	if _, err := d.Query(t.Context(), many, nil, host.RowLimit{Rows: 1 << 30, Bytes: 1000}); host.ErrnoOf(err) != host.TooLarge {
		t.Errorf("endless bytes = %v, want too large", err)
	}
}

// A statement ends with its context, the transaction is undone, and the next
// one finds a whole writer with its limits in place.
func TestCancelledStatement(t *testing.T) {
	d := open(t, "CREATE TABLE a (v INTEGER)")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	tx, err := d.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "INSERT INTO a VALUES (1)", nil); err != nil {
		t.Fatal(err)
	}
	_, err = tx.Exec(ctx, "INSERT INTO a WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n", nil)
	if host.ErrnoOf(err) != host.Cancelled {
		t.Errorf("endless statement = %v, want cancelled", err)
	}
	if err := tx.Rollback(); err != nil { // SQLite did it already
		t.Errorf("rollback = %v", err)
	}
	tx = begin(t, d)
	if _, err := tx.Exec(t.Context(), "COMMIT", nil); err == nil {
		t.Error("COMMIT is permitted on the connection that replaced the broken one")
	}
	exec(t, tx, "INSERT INTO a VALUES (2)")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := number(t, d, "SELECT sum(v) FROM a"); got != 2 {
		t.Errorf("sum = %d, want 2", got)
	}
}

// A read that does not end is broken off too, within the transaction and after
// statements that ended well before.
func TestCancelledQuery(t *testing.T) {
	d := open(t)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		tx, err := d.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if _, err := tx.Query(ctx, "SELECT 1", nil, host.RowLimit{Rows: 1, Bytes: 100}); err != nil {
				t.Fatal(err)
			}
		}
		time.AfterFunc(20*time.Millisecond, cancel)
		_, err = tx.Query(ctx, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n", nil, host.RowLimit{Rows: 1, Bytes: 100})
		if host.ErrnoOf(err) != host.Cancelled {
			t.Errorf("endless query = %v, want cancelled", err)
		}
		if _, err := tx.Query(ctx, "SELECT 1", nil, host.RowLimit{Rows: 1, Bytes: 100}); err == nil {
			t.Error("a query after the end is not refused")
		}
		tx.Rollback()
	}
}

// The end of a context breaks off the guest's statements alone, whenever it comes:
// what the host runs itself goes on, and what succeeded is committed.
func TestCancelledBetween(t *testing.T) {
	d := open(t, "CREATE TABLE a (v INTEGER)")
	want := int64(0)
	for i := range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		tx, err := d.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Duration(i*7)*time.Microsecond, cancel)
		kept := int64(0)
		for err == nil {
			if err := tx.Savepoint(ctx); err != nil {
				t.Fatalf("savepoint: %v", err)
			}
			if _, err = tx.Exec(ctx, "INSERT INTO a VALUES (1)", nil); err == nil {
				kept++
			}
			if tx.Lost() {
				break
			}
			if err := tx.Release(ctx); err != nil {
				t.Fatalf("release: %v", err)
			}
		}
		if tx.Lost() {
			tx.Rollback()
		} else if err := tx.Commit(ctx); err != nil {
			t.Fatalf("commit: %v", err)
		} else {
			want += kept
		}
	}
	if got := number(t, d, "SELECT count(*) FROM a"); got != want {
		t.Errorf("%d rows, want %d", got, want)
	}
}

func TestBeginWaitsItsTurn(t *testing.T) {
	d := open(t)
	tx := begin(t, d)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := d.Begin(ctx); host.ErrnoOf(err) != host.Cancelled {
		t.Errorf("a second transaction = %v, want cancelled after its wait", err)
	}
	tx.Rollback()
	begin(t, d).Rollback()
}

// tables counts the tables of a name, which guests cannot.
func tables(t *testing.T, d *Database, name string) (n int) {
	t.Helper()
	if err := d.outbox.QueryRow("SELECT count(*) FROM sqlite_schema WHERE name = ?", name).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestMigrations(t *testing.T) {
	d := open(t)
	first := manifests.Migration{Name: "001.sql", SQL: "CREATE TABLE a (v); CREATE VIRTUAL TABLE f USING fts5(v);"}
	broken := manifests.Migration{Name: "002.sql", SQL: "CREATE TABLE b (v); CREATE NONSENSE"}
	if err := d.Migrate(t.Context(), []manifests.Migration{first, broken}); err == nil || !strings.Contains(err.Error(), "002.sql") {
		t.Errorf("broken migration = %v, want an error that names 002.sql", err)
	}
	if got := tables(t, d, "b"); got != 0 {
		t.Error("half of a broken migration was applied")
	}
	fixed := manifests.Migration{Name: "002.sql", SQL: "CREATE TABLE b (v)"}
	for range 2 { // the second time there is nothing to do
		if err := d.Migrate(t.Context(), []manifests.Migration{first, fixed}); err != nil {
			t.Fatal(err)
		}
	}
	first.SQL += "-- changed"
	if err := d.Migrate(t.Context(), []manifests.Migration{first}); err == nil || !strings.Contains(err.Error(), "changed") {
		t.Errorf("a changed migration = %v, want an error that says so", err)
	}
	tx := begin(t, d)
	exec(t, tx, "INSERT INTO f VALUES ('multi-agent systems')")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := number(t, d, `SELECT count(*) FROM f WHERE f MATCH '"multi-agent"'`); got != 1 {
		t.Errorf("FTS5 hits = %d, want 1", got)
	}
}

// A failed statement undoes itself alone: SQLite's own rule, on which
// savepoints rest.
func TestConstraint(t *testing.T) {
	d := open(t, "CREATE TABLE a (v INTEGER UNIQUE)")
	tx := begin(t, d)
	exec(t, tx, "INSERT INTO a VALUES (1)")
	if _, err := tx.Exec(t.Context(), "INSERT INTO a VALUES (1)", nil); host.ErrnoOf(err) != host.Conflict {
		t.Errorf("a second row = %v, want conflict", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := number(t, d, "SELECT count(*) FROM a"); got != 1 {
		t.Errorf("count = %d, want 1", got)
	}
}
