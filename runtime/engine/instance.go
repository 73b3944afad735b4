package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/pelton-run/pelton/host"
)

// What an instance remembers of texts: how many, and how long each may be.
const (
	maxTexts    = 256
	maxTextSize = 4 << 10
)

// instance is one instantiated module with its own memory. One goroutine uses
// it at a time.
type instance struct {
	module     api.Module
	handle     api.Function
	stack      [3]uint64
	invocation *invocation
	fuel       uint64            // of the next refuel
	refuelled  time.Time         // when that was last, in this call
	ended      time.Time         // when the guest was first seen to go on beyond its time
	call       *host.Call        // of the invocation that runs; nil between
	scratch    []byte            // where answers are encoded
	texts      map[string]string // statements that were seen, so that they are not copied each time
	output     *lines
}

// invocation is the context of everything that runs in an instance. wazero
// hands it to host functions as it is, so they find their instance without a
// look-up.
type invocation struct {
	context.Context
	instance *instance
}

// text reads a text that is likely to come again, such as a statement.
func (in *instance) text(r *reader) string {
	b := r.take(r.u32())
	if s, ok := in.texts[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(s) > maxTextSize {
		return s
	}
	if len(in.texts) >= maxTexts {
		clear(in.texts)
	}
	in.texts[s] = s
	return s
}

// memoryLimit allocates an instance's memory up to the manifest's limit; growth
// beyond it fails in the guest.
type memoryLimit struct{ bytes uint64 }

// Allocate implements experimental.MemoryAllocator.
func (l memoryLimit) Allocate(capacity, _ uint64) experimental.LinearMemory {
	return &linearMemory{limit: l.bytes}
}

type linearMemory struct {
	b     []byte
	limit uint64
}

// Reallocate implements experimental.LinearMemory: nil refuses the growth.
func (m *linearMemory) Reallocate(size uint64) []byte {
	if size > m.limit {
		return nil
	}
	if size > uint64(cap(m.b)) {
		// Twice what is asked for, so that a guest that grows page by page is not
		// copied each time; what is not touched costs no memory.
		grown := make([]byte, size, min(2*size, m.limit))
		copy(grown, m.b)
		m.b = grown
	}
	m.b = m.b[:size]
	return m.b
}

// Free implements experimental.LinearMemory.
func (m *linearMemory) Free() { m.b = nil }

// newInstance instantiates a module and runs its _initialize, within ctx.
func newInstance(ctx context.Context, m *Module, s Settings) (*instance, error) {
	in := &instance{texts: map[string]string{}, output: &lines{}, fuel: firstFuel}
	in.output.to = func(line string) { in.call.Log(0, 0, line, nil) } // a guest writes only while it is called
	in.invocation = &invocation{Context: context.Background(), instance: in}
	// What the guest calls while it initialises is granted nothing.
	in.call = host.NewCall(ctx, "", &host.Grants{}, host.Limits{}, silent{}, nil)
	defer in.call.Close()
	config := wazero.NewModuleConfig().
		WithName("").
		WithStartFunctions(). // _initialize is called below, where its errors are told apart
		WithSysWalltime().
		WithSysNanotime().
		WithNanosleep(in.sleep).
		WithRandSource(rand.Reader).
		WithStdout(in.output).
		WithStderr(in.output)
	for name, value := range s.Env {
		config = config.WithEnv(name, value)
	}
	module, err := m.engine.runtime.InstantiateModule(experimental.WithMemoryAllocator(in.invocation, memoryLimit{uint64(s.Memory)}), m.compiled, config)
	if err != nil {
		return nil, fmt.Errorf("%w: instantiate: %v", ErrABI, err)
	}
	in.module = module
	if init := module.ExportedFunction(exportInit); init != nil {
		if _, err := init.Call(in.invocation); err != nil {
			err = in.explain(context.Cause(ctx), err)
			return nil, errors.Join(fmt.Errorf("run %s: %w", exportInit, err), in.close())
		}
	}
	in.handle = module.ExportedFunction(exportHandle)
	return in, nil
}

func (in *instance) close() error { return in.module.Close(context.Background()) }

// sleep is the guest's time.Sleep. It ends with the invocation.
func (in *instance) sleep(ns int64) {
	timer := time.NewTimer(time.Duration(ns))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-in.call.Context().Done():
	}
}

// silent drops the log of a guest that initialises: it has no function's log yet.
type silent struct{}

func (silent) Log(*host.Message, int, string, [][2]string) {}

// maxScratch bounds what an instance keeps of its scratch memory.
const maxScratch = 1 << 20

// run calls the handler for an invocation. When the invocation's context ends,
// its operations return cancelled and the handler may still return within
// [Grace]; then the guest is stopped.
func (in *instance) run(c *host.Call) error {
	in.call, in.ended, in.refuelled, in.fuel = c, time.Time{}, time.Time{}, firstFuel
	in.stack = [3]uint64{uint64(host.BatchID), uint64(host.BatchID + 1), uint64(len(c.Deliveries()))}
	err := in.handle.CallWithStack(in.invocation, in.stack[:])
	in.output.flush()
	if err != nil {
		err = in.explain(c.Ended(time.Now()), err)
	}
	in.call = nil
	if cap(in.scratch) > maxScratch {
		in.scratch = nil
	}
	return err
}

// How much fuel a guest gets at a time: so much that it comes back after about a
// millisecond of work.
const (
	firstFuel  = 100_000
	leastFuel  = 20_000
	mostFuel   = 1_000_000
	refuelSoon = 500 * time.Microsecond
	refuelLate = 2 * time.Millisecond
)

// errStopped is what a guest's call ends with when its time is over.
var errStopped = errors.New("stopped")

// refuel is what a guest calls when its fuel is used up: it lets the host's other
// work have its turn (nothing else interrupts compiled code, and the collector
// waits for it), and stops a guest whose time and grace are over.
func (in *instance) refuel() uint64 {
	now := time.Now()
	if in.call.Ended(now) != nil {
		if in.ended.IsZero() {
			in.ended = now
		}
		if now.Sub(in.ended) >= Grace {
			panic(errStopped)
		}
	}
	if took := now.Sub(in.refuelled); !in.refuelled.IsZero() {
		if took < refuelSoon {
			in.fuel = min(in.fuel*2, mostFuel)
		} else if took > refuelLate {
			in.fuel = max(in.fuel/2, leastFuel)
		}
	}
	runtime.Gosched()
	in.refuelled = time.Now()
	return in.fuel
}

// explain says in one line how a guest ended; the rest of a Go guest's trace is
// in its log.
func (in *instance) explain(ended, err error) error {
	var exit *sys.ExitError
	switch {
	case ended != nil:
		return fmt.Errorf("%w: %v", ErrTimeout, ended)
	case errors.As(err, &exit):
		if said := in.output.first(); said != "" {
			return fmt.Errorf("%w: status %d: %s", ErrExit, exit.ExitCode(), said)
		}
		return fmt.Errorf("%w: the guest ended its program with status %d", ErrExit, exit.ExitCode())
	}
	text, _, _ := strings.Cut(err.Error(), "\nwasm stack trace:")
	text, _, _ = strings.Cut(text, "\n")
	if said := in.output.first(); said != "" {
		text += ": " + said
	}
	return fmt.Errorf("%w: %s", ErrTrap, text)
}
