package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pelton-run/pelton/bench"
	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime/engine"
)

const bin = "../../bin"

var report bench.Report

func TestMain(m *testing.M) {
	status := m.Run()
	if err := report.Write("../out", "bench-engine"); err != nil {
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

func guest(b *testing.B, name string) []byte {
	b.Helper()
	wasm, err := os.ReadFile(filepath.Join(bin, "testers", name+".wasm"))
	must(b, err)
	return wasm
}

const grants = "grants: {sqlite: {test: {mode: write}}, http: [{public: true}], blob: {test: {mode: write}}, kv: {TEST: {mode: write}}, publish: [out.>]}\n"

// newPool makes a pool of a guest that make testers builds.
func newPool(b *testing.B, name string, unmetered bool, s engine.Settings) *engine.Pool {
	b.Helper()
	return newPools(b, 1, name, unmetered, s)[0]
}

func newPools(b *testing.B, n int, name string, unmetered bool, s engine.Settings) []*engine.Pool {
	b.Helper()
	ctx := context.Background()
	e, err := engine.New(ctx, engine.Config{CacheDir: filepath.Join(bin, "testers", "cache"), Unmetered: unmetered})
	must(b, err)
	module, err := e.Compile(ctx, engine.NewBinary(guest(b, name)), manifest(b))
	must(b, err)
	if s.Memory == 0 {
		s.Memory = 64 << 20
	}
	pools := make([]*engine.Pool, n)
	for i := range pools {
		pools[i], err = engine.NewPool(module, s)
		must(b, err)
		must(b, pools[i].Try(ctx))
	}
	b.Cleanup(func() {
		for _, p := range pools {
			p.Close()
		}
		e.Close(ctx)
	})
	return pools
}

func manifest(b *testing.B) *manifests.Manifest {
	b.Helper()
	m, err := manifests.Decode("f.yaml", []byte("name: f\ntriggers: [{stream: S}]\n"+grants))
	must(b, err)
	return m
}

type silent struct{}

func (silent) Log(*host.Message, int, string, [][2]string) {}

var errTimeout = errors.New("timeout")

// invoke runs one message to its ack.
func invoke(b *testing.B, p *engine.Pool, g *host.Grants, body string) host.Usage {
	c := host.NewCall(context.Background(), "f", g, host.Limits{Tickets: 1000, HTTPRequests: 1000, Buffers: 1 << 24}, silent{},
		[]*host.Message{{Stream: "S", Subject: "a.b", Data: []byte(body), Timestamp: time.Now()}})
	defer c.Close()
	c.SetTimeout(time.Minute, errTimeout)
	must(b, p.Invoke(c))
	must(b, c.Finish())
	if o := c.Deliveries()[0].Outcome; o.Disposition != host.Ack {
		b.Fatalf("%q: %+v", body, o)
	}
	return c.Usage
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
