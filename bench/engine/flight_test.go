package engine

import (
	"context"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pelton-run/pelton/bench"
	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/runtime/engine"
	"github.com/pelton-run/pelton/runtime/wasm"
)

// slow answers requests as late as they say.
type slow struct{}

func (slow) Keyed() bool { return false }
func (slow) Do(ctx context.Context, r *host.Request) (*host.HTTPResponse, error) {
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil, err
	}
	us, _ := strconv.Atoi(u.Query().Get("us"))
	timer := time.NewTimer(time.Duration(us) * time.Microsecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return &host.HTTPResponse{Status: 200, Body: []byte("38")}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// BenchmarkInFlight compares 500 deliveries in one Go instance, each with three
// waits of 50 ms one after the other, with as many goroutines that wait.
func BenchmarkInFlight(b *testing.B) {
	const n = 500
	pool := newPool(b, "conformance", false, engine.Settings{Max: 1, Shared: true})
	grants := &host.Grants{HTTP: slow{}}
	all := func(one func()) func(int) time.Duration {
		return func(int) time.Duration {
			start := time.Now()
			var group sync.WaitGroup
			for range n {
				group.Go(one)
			}
			group.Wait()
			return time.Since(start)
		}
	}
	guest := all(func() { invoke(b, pool, grants, "wait 50000 50000 50000") })
	native := all(func() {
		for range 3 {
			_, err := slow{}.Do(context.Background(), &host.Request{URL: "http://test.example/?us=50000"})
			must(b, err)
		}
	})
	guest(0)
	ours, theirs := bench.Interleave(7, guest, native)
	report.Add("500 deliveries in flight in one instance, three waits of 50 ms each, vs. native goroutines", "deliveries/s", n/ours.Seconds(), n/theirs.Seconds(), 0.8)
	report.AddTime("memory of that instance, vs. 16 MB", "MB", float64(pool.Memory())/1e6, 16, 1)
	b.ReportMetric(theirs.Seconds()/ours.Seconds(), "ratio")
}

// BenchmarkTimer measures how late an unrelated 1 ms timer is in the process
// while two guests compute and the collector works.
func BenchmarkTimer(b *testing.B) {
	late := func(unmetered bool) time.Duration {
		pool := newPool(b, "compute", unmetered, engine.Settings{Max: 2})
		var stop atomic.Bool
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() {
				for !stop.Load() {
					invoke(b, pool, &host.Grants{}, "jpeg")
				}
			})
		}
		group.Go(func() {
			for !stop.Load() {
				runtime.GC()
				time.Sleep(10 * time.Millisecond)
			}
		})
		var all []time.Duration
		for begin := time.Now(); time.Since(begin) < 4*time.Second; {
			start := time.Now()
			time.Sleep(time.Millisecond)
			all = append(all, time.Since(start)-time.Millisecond)
		}
		stop.Store(true)
		group.Wait()
		slices.Sort(all)
		return all[len(all)*99/100]
	}
	var ours, plain []time.Duration
	for range 3 {
		ours, plain = append(ours, late(false)), append(plain, late(true))
	}
	a, p := bench.Median(ours), bench.Median(plain)
	report.AddTime("p99 delay of a 1 ms timer beside two guests that compute, vs. plain wazero", "ms", millis(a), millis(p), 0)
	report.AddTime("the same, vs. 15 ms", "ms", millis(a), 15, 1)
	b.ReportMetric(millis(a), "p99-ms")
}

// BenchmarkCall measures a call of an empty handler.
func BenchmarkCall(b *testing.B) {
	call := func(p *engine.Pool) func() {
		c, g, m := &host.Call{}, &host.Grants{}, &host.Message{Stream: "S", Subject: "a.b", Data: make([]byte, 512), Timestamp: time.Now()}
		return func() {
			c.Reset(context.Background(), "f", g, host.Limits{Tickets: 1}, silent{}, 1)
			c.Deliveries()[0].Message = m
			c.SetTimeout(time.Minute, errTimeout)
			must(b, p.Invoke(c))
			c.Close()
		}
	}
	metered := call(newPool(b, "nowork", false, engine.Settings{Max: 1, Shared: true}))
	plain := call(newPool(b, "nowork", true, engine.Settings{Max: 1, Shared: true}))
	for range 2000 {
		metered()
		plain()
	}
	ours, theirs := bench.Interleave(41, repeat(2000, metered), repeat(2000, plain))
	report.AddTime("call of an empty handler: metered, vs. plain wazero", "µs", micros(ours), micros(theirs), 1.1)
	report.AddTime("allocations of such a call, vs. one", "", testing.AllocsPerRun(2000, metered), 1, 0.01)
	b.ReportMetric(micros(ours), "µs/call")
}

// BenchmarkIsolation measures what isolation: message adds to each message.
func BenchmarkIsolation(b *testing.B) {
	warm := newPool(b, "nowork", false, engine.Settings{Max: 1})
	fresh := newPool(b, "nowork", false, engine.Settings{Max: 1, Fresh: true})
	run := func(p *engine.Pool) func() { return func() { invoke(b, p, &host.Grants{}, "x") } }
	with, without := bench.Interleave(15, repeat(300, run(fresh)), repeat(300, run(warm)))
	instance := median(9, repeat(5, func() { must(b, warm.Try(context.Background())) }))
	added := with - without
	report.AddTime("isolation: message for a Go guest, added to each message, vs. 150 µs", "µs", micros(added), 150, 1)
	report.AddTime("the same, vs. a fresh instance", "µs", micros(added), micros(instance), 1.0/30)
	b.ReportMetric(micros(added), "µs/message")
}

// BenchmarkRewrite measures reading and rewriting a module.
func BenchmarkRewrite(b *testing.B) {
	module := guest(b, "conformance")
	took := median(15, repeat(3, func() {
		_, err := wasm.Meter(module)
		must(b, err)
	}))
	took = time.Duration(float64(took) * 4e6 / float64(len(module)))
	report.AddTime("reading and rewriting 4 MB of a Go module, vs. 100 ms", "ms", millis(took), 100, 1)
	compile := median(3, func(int) time.Duration {
		e, err := engine.New(context.Background(), engine.Config{CacheDir: b.TempDir()})
		must(b, err)
		defer e.Close(context.Background())
		start := time.Now()
		_, err = e.Compile(context.Background(), engine.NewBinary(module), manifest(b))
		must(b, err)
		return time.Since(start)
	})
	compile = time.Duration(float64(compile) * 4e6 / float64(len(module)))
	report.AddTime("the same, vs. compiling it cold", "ms", millis(took), millis(compile), 0.05)
	runtime.GC()
}
