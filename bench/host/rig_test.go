package host

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/pelton-run/pelton/bench"
	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/host/sqlite"
	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime/engine"
)

const bin = "../../bin"

var report bench.Report

func TestMain(m *testing.M) {
	status := m.Run()
	if err := report.Write("../out", "bench-host"); err != nil {
		fmt.Fprintln(os.Stderr, "write report:", err)
		status = 1
	}
	os.Exit(status)
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// newPool makes a pool of a module under a manifest.
func newPool(b *testing.B, wasm []byte, manifest string, s engine.Settings) *engine.Pool {
	b.Helper()
	ctx := context.Background()
	e, err := engine.New(ctx, engine.Config{CacheDir: filepath.Join(bin, "testers", "cache")})
	must(b, err)
	m, err := manifests.Decode("f.yaml", []byte(manifest))
	must(b, err)
	module, err := e.Compile(ctx, engine.NewBinary(wasm), m)
	must(b, err)
	s.Memory = int64(m.Limits.Memory)
	pool, err := engine.NewPool(module, s)
	must(b, err)
	must(b, pool.Try(ctx))
	b.Cleanup(func() { pool.Close(); e.Close(ctx) })
	return pool
}

func guest(b *testing.B, name string) []byte {
	b.Helper()
	wasm, err := os.ReadFile(filepath.Join(bin, name+".wasm"))
	must(b, err)
	return wasm
}

type silent struct{}

func (silent) Log(*host.Message, int, string, [][2]string) {}

var errTimeout = errors.New("timeout")

// invoke runs one message to its ack, in a transaction if one is granted, and
// returns how long the handler took.
func invoke(b *testing.B, p *engine.Pool, g *host.Grants, body string) time.Duration {
	b.Helper()
	c := host.NewCall(context.Background(), "f", g, host.Limits{Tickets: 1000, Rows: host.RowLimit{Rows: 100_000, Bytes: 16 << 20}, Response: 1 << 20, Buffers: 1 << 24}, silent{},
		[]*host.Message{{Stream: "S", Subject: "a.b", Data: []byte(body), Timestamp: time.Now(), StreamSeq: 1, StreamCreated: time.Now(), Consumer: "f"}})
	defer c.Close()
	c.SetTimeout(time.Minute, errTimeout)
	_, err := c.Start()
	must(b, err)
	begin := time.Now()
	must(b, p.Invoke(c))
	took := time.Since(begin)
	must(b, c.Finish())
	if o := c.Deliveries()[0].Outcome; o.Disposition != host.Ack {
		b.Fatalf("%q: %+v", body, o)
	}
	return took
}

// database opens a database with a schema.
func database(b *testing.B, schema string) *sqlite.Database {
	b.Helper()
	db, err := sqlite.Open(context.Background(), "test", filepath.Join(b.TempDir(), "test.db"))
	must(b, err)
	b.Cleanup(func() { must(b, db.Close()) })
	_, err = db.Ready(context.Background())
	must(b, err)
	must(b, db.Migrate(context.Background(), []manifests.Migration{{Name: "1.sql", SQL: schema}}))
	return db
}

// native opens one as a program without Pelton would.
func native(b *testing.B, schema string) *sql.DB {
	b.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "native.db")+"?_journal_mode=WAL&_synchronous=FULL&_txlock=immediate")
	must(b, err)
	b.Cleanup(func() { must(b, db.Close()) })
	_, err = db.Exec(schema)
	must(b, err)
	return db
}

func micros(d time.Duration, n int) float64 {
	return float64(d) / float64(time.Microsecond) / float64(n)
}
