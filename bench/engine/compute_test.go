package engine

import (
	"context"
	"encoding/json"
	"math"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/pelton-run/pelton/bench"
	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/runtime/engine"
)

var kinds = []string{"jpeg", "json", "sha256", "sort", "regexp"}

// BenchmarkCompute compares guests that compute: metered, in plain wazero, with
// wazero's own way to stop a guest, and in Extism with its timeout on.
func BenchmarkCompute(b *testing.B) {
	// How fast a guest computes depends on where its memory happens to lie, by up
	// to a half: so each round has instances of its own.
	const rounds = 31
	metered := newPools(b, rounds, "compute", false, engine.Settings{Max: 1, Shared: true})
	plain := newPools(b, rounds, "compute", true, engine.Settings{Max: 1, Shared: true})
	closing := closeOnDone(b)
	extism := runExtism(b)
	product, worst := 1.0, 0.0
	for _, kind := range kinds {
		per := perCall(func() { invoke(b, plain[0], &host.Grants{}, kind) })
		n := max(3, int(40*time.Millisecond/per))
		in := func(pools []*engine.Pool) func(int) time.Duration {
			return func(round int) time.Duration {
				return repeat(n, func() { invoke(b, pools[round], &host.Grants{}, kind) })(round)
			}
		}
		ours, base := bench.Interleave(rounds, in(metered), in(plain))
		f := report.AddTime(kind+" in a Go guest: metered, vs. plain wazero", "µs", micros(ours), micros(base), 1.3)
		product *= f.Ratio
		worst = max(worst, f.Ratio)
		done := median(5, repeat(max(3, n/5), func() { closing(b, kind) }))
		report.AddTime(kind+": ours, vs. wazero's close-on-done", "µs", micros(ours), micros(done), 0)
		if t := extism[kind]; t > 0 {
			report.AddTime(kind+": ours, vs. Extism with its timeout on", "µs", micros(ours), micros(t), 0)
		}
	}
	mean := math.Pow(product, 1/float64(len(kinds)))
	report.AddTime("the five in a Go guest: metered, vs. plain wazero, geometric mean", "x", mean, 1, 1.15)
	b.ReportMetric(mean, "mean-ratio")
	b.ReportMetric(worst, "worst-ratio")
}

func perCall(f func()) time.Duration {
	f()
	start := time.Now()
	f()
	return time.Since(start)
}

// repeat returns a round that runs f n times and tells the time of one.
func repeat(n int, f func()) func(int) time.Duration {
	return func(int) time.Duration {
		start := time.Now()
		for range n {
			f()
		}
		return time.Since(start) / time.Duration(n)
	}
}

func median(rounds int, f func(int) time.Duration) time.Duration {
	var all []time.Duration
	for i := range rounds {
		all = append(all, f(i))
	}
	return bench.Median(all)
}

// closeOnDone runs the plain guest in wazero with close-on-done, under a
// deadline.
func closeOnDone(b *testing.B) func(*testing.B, string) {
	b.Helper()
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCloseOnContextDone(true))
	b.Cleanup(func() { r.Close(ctx) })
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	m, err := r.InstantiateWithConfig(ctx, guest(b, "computeplain"), wazero.NewModuleConfig().WithStartFunctions("_initialize").WithSysWalltime().WithSysNanotime())
	must(b, err)
	functions := map[string]api.Function{}
	for _, kind := range kinds {
		functions[kind] = m.ExportedFunction(kind)
	}
	return func(b *testing.B, kind string) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		out, err := functions[kind].Call(ctx)
		must(b, err)
		if out[0] != 0 {
			b.Fatalf("%s returned %d", kind, out[0])
		}
	}
}

// runExtism runs the plain guest in a program of its own, whose module has the
// Extism SDK, and returns the time of one call of each kind.
func runExtism(b *testing.B) map[string]time.Duration {
	b.Helper()
	wasm, err := filepath.Abs(filepath.Join(bin, "testers", "computeplain.wasm"))
	must(b, err)
	run := exec.Command("go", "run", ".", wasm)
	run.Dir = "../extism"
	out, err := run.Output()
	must(b, err)
	var times map[string]time.Duration
	must(b, json.Unmarshal(out, &times))
	return times
}
