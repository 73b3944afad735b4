package host

import (
	"fmt"
	"testing"
	"time"

	"github.com/pelton-run/pelton/bench"
	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/runtime/engine"
)

const (
	rows   = "CREATE TABLE rows (n INTEGER, title TEXT, category TEXT, score REAL)"
	insert = "INSERT INTO rows (n, title, category, score) VALUES (?, ?, ?, ?)"
)

// BenchmarkStatements compares statements of a Go guest, one a call and a hundred a
// call, with those of a native program in a transaction, prepared once.
func BenchmarkStatements(b *testing.B) {
	const n = 20_000
	pool := newPool(b, guest(b, "testers/statements"), "name: f\ntriggers: [{stream: S}]\ngrants: {sqlite: {test: {mode: write}}}\n", engine.Settings{Max: 1})
	grants := &host.Grants{Databases: map[string]host.Database{"test": database(b, rows)}, Write: "test"}
	plain := native(b, rows)
	statements := func(int) time.Duration {
		tx, err := plain.Begin()
		must(b, err)
		s, err := tx.Prepare(insert)
		must(b, err)
		begin := time.Now()
		for i := range n {
			_, err := s.Exec(i, "a title of a usual length", "news", 1.5)
			must(b, err)
		}
		took := time.Since(begin)
		must(b, tx.Rollback())
		return took
	}
	for _, c := range []struct {
		command, name string
		goal          float64
	}{
		{"one", "one SQL statement a host call, Go guest, vs. natively", 1.3},
		{"many", "100 rows in one host call, a row, Go guest, vs. natively", 1.15},
	} {
		body := fmt.Sprintf("%s %d", c.command, n)
		invoke(b, pool, grants, body)
		ours, theirs := bench.Interleave(bench.Rounds, func(int) time.Duration { return invoke(b, pool, grants, body) }, statements)
		f := report.AddTime(c.name, "µs", micros(ours, n), micros(theirs, n), c.goal)
		b.ReportMetric(f.Ratio, c.command+"-ratio")
	}
}
