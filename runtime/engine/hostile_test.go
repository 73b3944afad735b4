package engine

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
)

// forms of code that would run for ever, or nearly so.
func hostile() map[string]struct {
	module *assembly
	want   error
} {
	loop := []byte{0x03, 0x40, 0x0C, 0, end} // loop br 0 end
	tree := &assembly{}                      // f0 calls f1 twice, f1 f2, ...: 2^40 calls and no loop
	for i := range 40 {
		tree.bodies = append(tree.bodies, join(callOf(uint32(i+1)), callOf(uint32(i+1))))
	}
	tree.bodies = append(tree.bodies, []byte{0x01}, callOf(0))
	line := bytes.Repeat([]byte{0x41, 1, 0x1A}, 300_000) // i32.const 1, drop
	indirect := &assembly{table: true, bodies: [][]byte{{0x41, 1, 0x11, typeNone, 0}, callOf(0)}}
	return map[string]struct {
		module *assembly
		want   error
	}{
		"loop":             {&assembly{bodies: [][]byte{loop}}, ErrTimeout},
		"recursion":        {&assembly{bodies: [][]byte{callOf(0)}}, ErrTrap},
		"mutual":           {&assembly{bodies: [][]byte{callOf(1), callOf(0)}}, ErrTrap},
		"indirect":         {indirect, ErrTrap},
		"call tree":        {tree, ErrTimeout},
		"host calls":       {&assembly{imports: []string{"ready"}, bodies: [][]byte{join([]byte{0x03, 0x40}, i32c(0), i32c(0), callOf(0), []byte{0x1A, 0x0C, 0, end})}}, ErrBudget},
		"straight line":    {&assembly{bodies: [][]byte{line}}, nil},
		"lines in a loop":  {&assembly{bodies: [][]byte{join([]byte{0x03, 0x40}, line, []byte{0x0C, 0, end})}}, ErrTimeout},
		"memory.fill":      {&assembly{pages: 64, bodies: [][]byte{join([]byte{0x03, 0x40}, i32c(0), i32c(0), []byte{0x41, 0x80, 0x80, 0x80, 0x02, 0xFC, 11, 0, 0x0C, 0, end})}}, ErrTimeout},
		"memory.grow":      {&assembly{bodies: [][]byte{{0x03, 0x40, 0x41, 1, 0x40, 0, 0x1A, 0x0C, 0, end}}}, ErrTimeout},
		"divisions":        {&assembly{bodies: [][]byte{join([]byte{0x03, 0x40}, bytes.Repeat([]byte{0x42, 1, 0x42, 3, 0x7F, 0x1A}, 100_000), []byte{0x0C, 0, end})}}, ErrTimeout},
		"memory.grow 0":    {&assembly{bodies: [][]byte{join([]byte{0x03, 0x40}, bytes.Repeat([]byte{0x41, 0, 0x40, 0, 0x1A}, 100_000), []byte{0x0C, 0, end})}}, ErrTimeout},
		"indirect work":    {indirectWork(), ErrTimeout},
		"random":           {&assembly{pages: 64, foreign: []string{"wasi_snapshot_preview1.random_get"}, bodies: [][]byte{join([]byte{0x03, 0x40}, i32c(0), []byte{0x41, 0x80, 0x80, 0x80, 0x01}, callOf(0), []byte{0x1A, 0x0C, 0, end})}}, ErrTimeout},
		"yields":           {&assembly{foreign: []string{"wasi_snapshot_preview1.sched_yield"}, bodies: [][]byte{join([]byte{0x03, 0x40}, bytes.Repeat(join(callOf(0), []byte{0x1A}), 100_000), []byte{0x0C, 0, end})}}, ErrTimeout},
		"many vectors":     {manyVectors(), nil},
		"unreachable":      {&assembly{bodies: [][]byte{{opUnreach}}}, ErrTrap},
		"nobody's promise": {&assembly{bodies: [][]byte{{0x01}}}, nil},
	}
}

// indirectWork calls, through a table and without end, a function that divides.
func indirectWork() *assembly {
	work := bytes.Repeat([]byte{0x42, 1, 0x42, 3, 0x7F, 0x1A}, 30)
	calls := bytes.Repeat([]byte{0x41, 0, 0x11, typeNone, 0}, 5000)
	return &assembly{table: true, bodies: [][]byte{work, join([]byte{0x03, 0x40}, calls, []byte{0x0C, 0, end})}}
}

// manyVectors writes with more pieces than the host takes at once.
func manyVectors() *assembly {
	body := join(i32c(1), i32c(0), []byte{0x41, 0x80, 0x80, 0x20}, i32c(0), callOf(0), []byte{0x1A})
	return &assembly{pages: 64, foreign: []string{"wasi_snapshot_preview1.fd_write"}, bodies: [][]byte{body}}
}

// Whatever a guest does, it ends in its time and grace, and nothing of it stays.
func TestHostile(t *testing.T) {
	const grace = 50 * time.Millisecond
	e := newEngine(t)
	for name, tt := range hostile() {
		t.Run(name, func(t *testing.T) {
			module, err := e.Compile(t.Context(), NewBinary(tt.module.bytes()), manifest(t, ""))
			if err != nil {
				t.Fatal(err)
			}
			defer module.Close(t.Context())
			p, err := NewPool(module, Settings{Max: 1, Memory: 16 << 20, Grace: grace})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			timeout := 100 * time.Millisecond
			if tt.want != ErrTimeout {
				timeout = 30 * time.Second // something else ends it, not the clock
			}
			limits := limits
			limits.HostCalls = 100_000
			start := time.Now()
			c := callLimited(t.Context(), &record{}, limits, "x")
			c.SetTimeout(timeout, errors.New("the test's timeout"))
			err = p.Invoke(c)
			took := time.Since(start)
			if tt.want == nil && err != nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
			if tt.want == ErrTimeout && took > timeout+grace+time.Second {
				t.Errorf("it ended after %s", took)
			}
		})
	}
}

// A start function and _initialize are under the same control.
func TestHostileStart(t *testing.T) {
	e := newEngine(t)
	loop := &assembly{start: true, bodies: [][]byte{{0x03, 0x40, 0x0C, 0, end}}}
	module, err := e.Compile(t.Context(), NewBinary(loop.bytes()), manifest(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPool(module, Settings{Max: 1, Memory: 16 << 20, Init: 100 * time.Millisecond, Grace: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	start := time.Now()
	if err := p.Try(t.Context()); !errors.Is(err, ErrTimeout) || time.Since(start) > Grace+2*time.Second {
		t.Errorf("%v after %s, want a timeout", err, time.Since(start))
	}
}

// Twenty rounds of what goes wrong leave goroutines and memory as they were.
func TestHostileLeavesNothing(t *testing.T) {
	e := newEngine(t)
	p := newPool(t, e, "crash", "", Settings{Max: 2, Memory: 32 << 20, Grace: 30 * time.Millisecond})
	round := func() {
		for _, body := range []string{"exit", "goroutine-panic", "deep", "grow", "wild-high", "loop"} {
			invoke(t, p, 20*time.Millisecond, body)
		}
	}
	round()
	memory, goroutines := heap(), runtime.NumGoroutine()
	for range 20 {
		round()
	}
	if grown := heap() - memory; grown > 32<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	if n := runtime.NumGoroutine(); n > goroutines+2 {
		t.Errorf("%d goroutines, there were %d", n, goroutines)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A runaway recursion takes so much of the host's memory at most, and gives it
// back; RATIONALE.md tells what follows from that.
func TestRecursionMemory(t *testing.T) {
	e := newEngine(t)
	module, err := e.Compile(t.Context(), NewBinary((&assembly{bodies: [][]byte{callOf(0)}}).bytes()), manifest(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPool(module, Settings{Max: 1, Memory: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	before := heap()
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	_, _, err = invoke(t, p, 5*time.Second, "x")
	runtime.ReadMemStats(&m1)
	if !errors.Is(err, ErrTrap) || !strings.Contains(err.Error(), "stack overflow") {
		t.Errorf("%v, want a stack overflow", err)
	}
	if took := m1.TotalAlloc - m0.TotalAlloc; took > 400<<20 {
		t.Errorf("one runaway recursion allocated %d MiB", took>>20)
	} else {
		t.Logf("one runaway recursion allocates %d MiB in all, heap %d MiB", took>>20, (int64(m1.HeapAlloc)-before)>>20)
	}
	if left := heap() - before; left > 4<<20 {
		t.Errorf("%d bytes of it are left", left)
	}
}
