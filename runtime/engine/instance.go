package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
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

// instance is one instantiated module with its own memory. One goroutine at a
// time drives it: everything but what mu guards is that goroutine's.
type instance struct {
	code                  *code
	module                api.Module
	handle, start, resume api.Function
	stack                 [3]uint64
	invocation            *invocation
	onFinish              func(*host.Ticket) // finished, made once
	image                 *image             // what it is set back to, nil without isolation
	scratch               []byte             // where answers are encoded
	kept                  []byte             // an answer that did not fit
	calling               string             // the host function that was called last
	lastError             string             // the text of the last refusal
	texts                 map[string]string  // statements that were seen, so that they are not copied each time
	output                *lines
	born                  int64     // bytes of memory after _initialize
	since                 time.Time // idle
	retired               bool      // takes no more calls
	uncounted             bool      // retired, and another may have its place
	apart                 bool      // runs calls that were in an instance that went down

	debt      int       // of work of the host's since the last look at the clock
	fuel      uint64    // of the next refuel
	refuelled time.Time // when that was last, in this crossing

	driver     *seat            // whose goroutine drives it
	holder     *seat            // whose turn it is in the guest, as far as is known
	seats      map[uint32]*seat // in flight, by id
	tickets    map[int32]*host.Ticket
	nextID     uint32
	nextTicket int32
	mark       time.Time     // when guest time was last accounted
	busy       time.Duration // guest time in all
	lookAt     time.Time     // when to look for calls whose time is over
	shared     bool          // calls may run beside each other
	grace      time.Duration // after a call's deadline
	wakeAt     time.Time     // when the guest wants to be called, zero for only on news
	timer      time.Duration // until the guest's next timer, at its last rest; negative for none
	rung       bool          // the doorbell, and the guest has not read it

	wake      chan struct{} // told of news
	mu        sync.Mutex
	done      []*host.Ticket // finished, and the guest has not been told
	expired   []uint32       // calls whose time is over, likewise
	abandoned []int32        // operations of calls that have ended, likewise
	came      uint64         // how many of these there have been
	offered   uint64         // and had been when the guest was last called
	left      uint64         // the last of those that the guest has left where they were
}

// invocation is the context of everything that runs in an instance. wazero
// hands it to host functions as it is, so they find their instance without a
// look-up.
type invocation struct {
	context.Context
	instance *instance
}

type invocationKey struct{}

// Value finds the invocation in a context that wazero made of it, which is what
// a start function runs under.
func (i *invocation) Value(key any) any {
	if key == (invocationKey{}) {
		return i
	}
	return i.Context.Value(key)
}

// instanceOf finds the instance that a host function is called from. m is its
// module: a start function runs before the instance has it.
func instanceOf(ctx context.Context, m api.Module) *instance {
	i, ok := ctx.(*invocation)
	if !ok {
		i = ctx.Value(invocationKey{}).(*invocation)
	}
	if i.instance.module == nil {
		i.instance.module = m
	}
	return i.instance
}

// nobody is the call of a guest that speaks in no call's name; it is granted
// nothing.
func nobody() *host.Call {
	c := host.NewCall(context.Background(), "", &host.Grants{}, host.Limits{}, silent{}, nil)
	c.Number(0, 0) // it knows no delivery at all
	return c
}

// silent drops the log of a guest that initialises: it has no function's log yet.
type silent struct{}

func (silent) Log(*host.Message, int, string, [][2]string) {}

// speaker is the call in whose name output and calls without an id are taken.
func (in *instance) speaker() *host.Call {
	if in.holder != nil {
		return in.holder.call
	}
	for _, s := range in.seats {
		return s.call
	}
	return nobody()
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

// newInstance instantiates a module and runs its _initialize, under the control
// and for the time of any call.
func newInstance(ctx context.Context, m *Module, s Settings) (*instance, error) {
	in := &instance{texts: map[string]string{}, output: &lines{}, fuel: firstFuel, seats: map[uint32]*seat{},
		tickets: map[int32]*host.Ticket{}, nextID: 1, wake: make(chan struct{}, 1), shared: s.Shared, grace: s.Grace}
	in.onFinish = in.finished
	in.output.to = func(line string) { in.speaker().Log(0, 0, line, nil) } // a guest writes only while it is called
	in.invocation = &invocation{Context: context.Background(), instance: in}
	// What the guest calls while it initialises is granted nothing.
	birth := &seat{call: host.NewCall(ctx, "", &host.Grants{}, host.Limits{HostCalls: maxBirthCalls}, silent{}, nil)}
	defer birth.call.Close()
	birth.call.SetTimeout(s.Init, errInit)
	now := time.Now()
	in.enter(now)
	in.seat(birth, now)
	defer in.settled(birth, nil)
	in.driver = birth
	config := wazero.NewModuleConfig().
		WithName("").
		WithStartFunctions(). // _initialize is called below, where its errors are told apart
		WithSysWalltime().
		WithNanotime(func() int64 { return int64(nanotime()) }, 1)
	for name, value := range s.Env {
		config = config.WithEnv(name, value)
	}
	compiled, err := m.code.load(ctx)
	if err != nil {
		return nil, err
	}
	in.code = m.code
	module, err := m.code.engine.runtime.InstantiateModule(experimental.WithMemoryAllocator(in.invocation, memoryLimit{uint64(s.Memory)}), compiled, config)
	if err != nil {
		m.code.done()
		return nil, fmt.Errorf("%w: instantiate: %w", ErrABI, in.explain(err))
	}
	in.module = module
	if init := module.ExportedFunction(exportInit); init != nil {
		if _, err := init.Call(in.invocation); err != nil {
			err = in.explain(err)
			return nil, errors.Join(fmt.Errorf("run %s: %w", exportInit, err), in.close())
		}
	}
	in.handle = module.ExportedFunction(exportHandle)
	in.start, in.resume = module.ExportedFunction(exportStart), module.ExportedFunction(exportResume)
	in.born = int64(module.Memory().Size())
	if s.Fresh {
		in.image = takeImage(module, m.code.globals)
	}
	return in, nil
}

// maxBirthCalls bounds the host calls of _initialize.
const maxBirthCalls = 1_000_000

var errInit = errors.New("initialising takes too long")

func (in *instance) close() error {
	err := in.module.Close(context.Background())
	in.code.done()
	return err
}

// seat takes a call in at the begin of a crossing: it gets its ids, and its time
// begins.
func (in *instance) seat(s *seat, now time.Time) {
	n := uint32(len(s.call.Deliveries()))
	if in.nextID > 1<<31-2-n { // in time for a new instance
		in.nextID, in.retired = 1, true
	}
	s.id = in.nextID
	if in.shared {
		s.call.Number(0, s.id)
		s.call.StartMovableClock(now)
	} else {
		s.call.Number(s.id, s.id+1)
		n++
		s.call.StartClock(now)
	}
	in.nextID += max(n, 1)
	s.call.OnFinish(in.onFinish)
	s.busy, s.own, s.credited = in.busy, 0, 0
	if d := s.call.Deadline(); !d.IsZero() && d.Before(in.lookAt) {
		in.lookAt = d
	}
	in.seats[s.id] = s
	in.holder = s // a crossing has only begun: there is nothing to account
}

// How much fuel a guest gets at a time: so much that it comes back after about a
// millisecond of work.
const (
	firstFuel  = 250_000
	leastFuel  = 20_000
	mostFuel   = 500_000
	refuelSoon = 500 * time.Microsecond
	refuelLate = 2 * time.Millisecond
)

// errStopped is what a guest's call ends with when its time is over.
var errStopped = errors.New("stopped")

// enter begins a crossing into the guest.
func (in *instance) enter(now time.Time) {
	in.mark, in.refuelled, in.fuel = now, time.Time{}, firstFuel
	in.timer = -1
}

// refuel is what a guest calls when its fuel is used up: it lets the host's other
// work have its turn (nothing else interrupts compiled code, and the collector
// waits for it), and stops a guest whose time and grace are over.
func (in *instance) refuel() uint64 {
	if in.holder != nil {
		in.holder.call.Usage.Fuel += in.fuel
	}
	now := in.glance()
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

// glance stops a guest whose time, or budget of it, is used up.
func (in *instance) glance() time.Time {
	now := time.Now()
	in.account(now)
	if s := in.holder; s != nil {
		if err := s.call.Spend(s.own); err != nil {
			panic(fmt.Errorf("%w: %w", ErrBudget, err))
		}
	}
	if !now.Before(in.lookAt) {
		in.mustEnd(in.look(now))
	}
	return now
}

// worked counts what the host does for a guest between two refuels: so many
// bytes, and something for each call. It glances at the clock in time.
func (in *instance) worked(bytes int) {
	const perCall, most = 256, 4 << 20
	if in.debt += bytes + perCall; in.debt > most {
		in.debt = 0
		in.glance()
	}
}

// mustEnd stops the guest for a call that does not end.
func (in *instance) mustEnd(s *seat) {
	if s != nil {
		in.hold(s)
		panic(errStopped)
	}
}

// pause leaves the guest's clock standing while wait waits for something.
func (in *instance) pause(wait func()) {
	in.account(time.Now())
	wait()
	in.mark = time.Now()
}

// explain says in one line how a guest ended; the rest of a Go guest's trace is
// in its log.
func (in *instance) explain(err error) error {
	var exit *sys.ExitError
	switch {
	case errors.Is(err, errStopped):
		cause := error(errStopped)
		if in.holder != nil {
			cause = in.holder.call.Ended(time.Now())
		}
		return fmt.Errorf("%w: %v", ErrTimeout, cause)
	case errors.Is(err, ErrBudget), errors.Is(err, ErrDeadlock):
		text, _, _ := strings.Cut(err.Error(), " (recovered by wazero)")
		return known{text, err}
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

// known is an error of ours that came through the guest, without its trace.
type known struct {
	text string
	err  error
}

func (k known) Error() string { return k.text }
func (k known) Unwrap() error { return k.err }
