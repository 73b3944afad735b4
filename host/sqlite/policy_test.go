package sqlite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pelton-run/pelton/host"
)

const grammarSchema = `CREATE TABLE t (id INTEGER PRIMARY KEY, a, b); CREATE INDEX t_a ON t (a); INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'y');
CREATE TABLE u (t_id REFERENCES t, c); CREATE TABLE w (id INTEGER PRIMARY KEY AUTOINCREMENT); CREATE VIEW v AS SELECT * FROM t;
CREATE VIRTUAL TABLE ft USING fts5 (body); INSERT INTO ft VALUES ('word'); CREATE VIRTUAL TABLE rt USING rtree (id, x0, x1, y0, y1);`

// The policy agrees with a list of what each kind of statement may do, and the
// transaction goes on after each that is denied.
func TestGrammar(t *testing.T) {
	list, err := os.ReadFile("testdata/statements.txt")
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, grammarSchema)
	if _, err := d.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for entry := range strings.SplitSeq(strings.ReplaceAll(string(list), "\n  ", "\r"), "\n") {
		want, query, ok := strings.Cut(entry, " ")
		if !ok || want == "#" || !strings.Contains("+-!", want) {
			continue
		}
		query = strings.NewReplacer(`\;`, ";", "\r", "\n").Replace(query)
		count++
		tx := begin(t, d)
		_, err := tx.Exec(t.Context(), query, nil)
		got := verdict(query, err)
		if got != want {
			t.Errorf("%s: got %s, want %s (%v)", query, got, want, err)
		}
		if _, err := tx.Exec(t.Context(), "INSERT INTO w DEFAULT VALUES", nil); err != nil {
			t.Errorf("after %s: %v", query, err)
		}
		tx.Rollback()
	}
	if count < 200 {
		t.Errorf("%d statements, want 200 and more", count)
	}
	after, err := os.ReadDir(".")
	if err != nil || len(after) != len(before) {
		t.Errorf("%d files, want %d: a statement wrote one (%v)", len(after), len(before), err)
	}
}

// verdict says what became of a statement. One with a trigger's body has several
// statements to the host, and is refused before the policy sees it.
func verdict(query string, err error) string {
	switch {
	case err == nil, strings.Contains(query, "BEGIN ") && strings.Contains(query, "TRIGGER") && host.ErrnoOf(err) == host.Invalid && !strings.Contains(query, "_pelton_") && !strings.Contains(query, "TEMP") && !strings.Contains(query, "load_extension"):
		return "+"
	case host.ErrnoOf(err) == host.Denied, host.ErrnoOf(err) == host.Invalid:
		return "-"
	}
	return "!"
}

// A view or trigger of a guest may name what it likes; it is judged when it is used.
// A reader has no transaction that would keep VACUUM away.
func TestIndirect(t *testing.T) {
	d := open(t, grammarSchema)
	if _, err := d.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, d)
	defer tx.Rollback()
	for i, body := range []string{"SELECT * FROM _pelton_done", "SELECT load_extension('x')", "SELECT * FROM sqlite_schema", "SELECT * FROM sqlite_dbpage", "SELECT * FROM pragma_journal_mode"} {
		name := fmt.Sprintf("i%d", i)
		exec(t, tx, "CREATE VIEW "+name+" AS "+body)
		if _, err := tx.Query(t.Context(), "SELECT * FROM "+name, nil, wide); err == nil {
			t.Errorf("a view of %s is permitted", body)
		}
	}
	for _, query := range []string{"VACUUM", "VACUUM INTO 'out.db'", "ATTACH 'x.db' AS x", "PRAGMA query_only = 0", "CREATE TEMP TABLE x (y)"} {
		if _, err := d.Query(t.Context(), query, nil, wide); err == nil {
			t.Errorf("%s is permitted to a reader", query)
		}
	}
	if _, err := os.Stat("out.db"); err == nil {
		t.Error("VACUUM INTO wrote a file")
	}
}

// endless is a query that does not end by itself.
const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"

// Limits are on every connection, also on one that took the place of another, of
// the writer and of the readers.
func TestLimitsStay(t *testing.T) {
	d := open(t, grammarSchema)
	tooMuch := map[string]string{
		"a value":      "SELECT length(zeroblob(17000000))",
		"a text":       "SELECT length(printf('%20000000d', 1))",
		"a pattern":    "SELECT 'a' LIKE '" + strings.Repeat("%a", 600) + "'",
		"a statement":  "SELECT '" + strings.Repeat("x", MaxStatement) + "'",
		"columns":      "SELECT " + strings.Repeat("1,", 300) + "1",
		"depth":        "SELECT " + strings.Repeat("(1+", 300) + "1" + strings.Repeat(")", 300),
		"compound":     "SELECT 1" + strings.Repeat(" UNION SELECT 1", 60),
		"arguments":    "SELECT max(" + strings.Repeat("1,", 150) + "1)",
		"a value made": "SELECT length(replace(printf('%15000000d', 1), ' ', 'xx'))",
	}
	for round := range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		tx := begin(t, d)
		for what, query := range tooMuch {
			if round == 0 && strings.HasPrefix(what, "a ") { // slow to be refused
				continue
			}
			if _, err := tx.Query(t.Context(), query, nil, wide); err == nil {
				t.Errorf("round %d, writer: %s is permitted", round, what)
			}
			if _, err := d.Query(t.Context(), query, nil, wide); err == nil {
				t.Errorf("round %d, reader: %s is permitted", round, what)
			}
		}
		// Both are broken off, so that the next round has other connections.
		if _, err := tx.Query(ctx, endless, nil, wide); host.ErrnoOf(err) != host.Cancelled {
			t.Errorf("endless query of the writer: %v", err)
		}
		for range 4 {
			if _, err := d.Query(ctx, endless, nil, wide); host.ErrnoOf(err) != host.Cancelled {
				t.Errorf("endless query of a reader: %v", err)
			}
		}
		tx.Rollback()
		cancel()
	}
}

// What a statement may read in time, it is broken off in: a cross join, a sort.
func TestDeadlines(t *testing.T) {
	d := open(t, "CREATE TABLE a (v INTEGER); INSERT INTO a WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) SELECT i FROM n")
	for _, query := range []string{
		endless,
		"SELECT count(*) FROM a, a b, a c, a d, a e, a f",
		"SELECT count(*) FROM (SELECT a.v + b.v AS s FROM a, a b, a c ORDER BY s)",
		"SELECT count(*) FROM a, a b, a c WHERE a.v || b.v || c.v LIKE '%9%9%9%9%9%9%9%9%9%'",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		begin := time.Now()
		_, err := d.Query(ctx, query, nil, wide)
		cancel()
		if took := time.Since(begin); host.ErrnoOf(err) != host.Cancelled || took > 5*time.Second {
			t.Errorf("%s: %v after %s, want cancelled after 100ms", query, err, took)
		}
	}
}

// SQL-7: the log of writes does not keep what a burst of them, or a reader that was
// in the way, made of it.
func TestSmallWAL(t *testing.T) {
	d := open(t, "CREATE TABLE a (id INTEGER PRIMARY KEY, v BLOB)")
	reader, err := d.outbox.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.QueryRow("SELECT count(*) FROM a").Err(); err != nil {
		t.Fatal(err)
	}
	write := func(n int) {
		for i := range n {
			tx := begin(t, d)
			exec(t, tx, "INSERT OR REPLACE INTO a VALUES (?, zeroblob(100000))", int64(i%10))
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(400) // 40 MB, which the reader keeps from going into the file
	wal := d.path + "-wal"
	size := func() int64 {
		info, err := os.Stat(wal)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	if size() < MaxWAL {
		t.Fatalf("the log has %d bytes: the reader was not in the way", size())
	}
	if err := reader.Rollback(); err != nil {
		t.Fatal(err)
	}
	write(20)
	if got := size(); got > MaxWAL {
		t.Errorf("the log has %d bytes after the reader's end, want at most %d", got, MaxWAL)
	}
}

// A text without a statement is refused, whatever SQLite takes for blank.
func TestNoStatement(t *testing.T) {
	d := open(t)
	tx := begin(t, d)
	defer tx.Rollback()
	for _, query := range []string{"", " ", ";", ";;", "-- x", "/* x */", "/* x", "\ufeff", " \n;\t-- x\n", "/**/;/**/", "-- \x00SELECT 1", "/**/\x00SELECT 1", "\x00", "SELECT '\xff'", "\v", "\f"} {
		_, readErr := d.Query(t.Context(), query, nil, wide)
		_, queryErr := tx.Query(t.Context(), query, nil, wide)
		_, execErr := tx.Exec(t.Context(), query, nil)
		for _, err := range []error{readErr, queryErr, execErr} {
			if host.ErrnoOf(err) != host.Invalid {
				t.Errorf("%q = %v, want invalid", query, err)
			}
		}
	}
	for _, query := range []string{"CREATE TABLE a (v) -- x", "INSERT INTO a VALUES (1); -- x", "INSERT INTO a VALUES (2);", "/* x */ INSERT INTO a VALUES (3) /* y"} {
		if _, err := tx.Exec(t.Context(), query, nil); err != nil {
			t.Errorf("%q = %v", query, err)
		}
	}
}

// A file that is not a database is said to be so, and left as it is.
func TestCorruptFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	garbage := []byte(strings.Repeat("this is no database ", 1000))
	if err := os.WriteFile(path, garbage, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := Open(t.Context(), "x", path)
	if err == nil {
		_, err = d.Ready(t.Context())
		d.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "not a database") {
		t.Errorf("open = %v, want that it is not a database", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != string(garbage) {
		t.Errorf("the file was changed (%v)", err)
	}
}
