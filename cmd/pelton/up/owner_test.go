package up

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/pelton-run/pelton/runtime/broker"
	"github.com/pelton-run/pelton/runtime/status"
)

// State lives where it lives: a host with another database stands by and says
// where the state is, also when that host is gone; with the database it takes over,
// and with an older copy of it, it does not.
func TestStandby(t *testing.T) {
	s, err := broker.Start("127.0.0.1:0", t.TempDir(), broker.DefaultSync, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	f := newFolder(t).write("streams.yaml", "streams:\n  - {name: WORK, subjects: [work.>], max_age: 1h}\n  - {name: DONE, subjects: [done.*], max_age: 1h}\n").
		add("ledger", "testers/ledger", "name: ledger\ntriggers: [{stream: WORK, batch: {max: 10}}]\ngrants:\n  sqlite: {ledger: {mode: write}}\n  publish: [done.*]\n  http: [{public: true, methods: [POST]}]\n")
	host := func(name, data string) *bench {
		return start(t, f, func(c *Config) { c.Name, c.Data, c.URL = name, data, s.URL() })
	}
	copyOf := func(data string) string {
		t.Helper()
		to := t.TempDir()
		if err := os.CopyFS(filepath.Join(to, "sqlite"), os.DirFS(filepath.Join(data, "sqlite"))); err != nil {
			t.Fatal(err)
		}
		return to
	}
	next := 0
	publish := func(b *bench, n int) {
		t.Helper()
		for range n {
			next++
			b.publish(fmt.Sprintf("work.%d", next), fmt.Sprint(next))
		}
	}
	first := t.TempDir()
	a := host("a", first)
	until(t, "the stream is there", 10*time.Second, func() bool { return a.figures("ledger").State == status.StateOK })
	publish(a, 5)
	until(t, "a has handled five", 10*time.Second, func() bool { return a.figures("ledger").Acked == 5 })
	older := copyOf(first)
	publish(a, 5)
	until(t, "a has handled ten", 10*time.Second, func() bool { return a.figures("ledger").Acked == 10 })
	standsBy := func(b *bench, why string) {
		t.Helper()
		until(t, "standing by: "+why, 10*time.Second, func() bool {
			v := b.figures("ledger")
			return v.State == status.StateStandby && strings.Contains(strings.Join(v.Reasons, " "), why)
		})
	}
	b := host("b", t.TempDir())
	standsBy(b, "in a database of host a")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	publish(b, 1)
	standsBy(b, "{{host}}")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	c := host("c", older)
	standsBy(c, "an older copy")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	d := host("d", copyOf(first))
	until(t, "d has taken over", 15*time.Second, func() bool { return d.figures("ledger").Acked == 1 })
	if v := d.figures("ledger"); v.State != status.StateOK {
		t.Errorf("d is %s: %v", v.State, v.Reasons)
	}
}
