package engine

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/pelton-run/pelton/host"
)

// Timing of a pool.
const (
	// InitTimeout bounds instantiation and _initialize.
	InitTimeout = 30 * time.Second
	// Grace is how long a handler may still return after its deadline; then its
	// instance goes.
	Grace = time.Second
	// growAfter is how long a call waits, while all instances are held, until
	// one more is made.
	growAfter = 10 * time.Millisecond
	// IdleTimeout is how long an instance is kept that nothing calls.
	IdleTimeout = 30 * time.Second
)

// Settings is how a pool runs its instances.
type Settings struct {
	Max    int               // instances at one time
	Memory int64             // bytes of each
	Init   time.Duration     // for instantiation and _initialize; InitTimeout when 0
	Grace  time.Duration     // after a deadline; Grace when 0
	Env    map[string]string // what the guest sees as its environment
	Shared bool              // calls of one delivery run beside each other in an instance, if the module can do that
	Fresh  bool              // each invocation finds an instance as it was after _initialize
}

// Pool is the bounded set of a function's instances: one to begin with, more
// while calls wait, none after a while without calls. It is safe for concurrent
// use.
//
// No goroutine belongs to an instance: the goroutine of one of its calls drives
// it, and hands it on when that call is over.
type Pool struct {
	module   *Module
	settings Settings

	seats sync.Pool // of *seat, that are in no instance and no queue

	mu      sync.Mutex
	queue   []*seat     // that wait for an instance, the oldest first
	apart   []*seat     // that wait to run with fewer beside them
	idle    []*instance // that nobody drives
	resting []*instance // whose driver waits for news
	alive   int         // instances that are there or being made
	crowd   crowd
	lane    bool        // whether an instance runs those that are apart
	timer   *time.Timer // grows the pool
	armed   bool
	reaper  *time.Timer // closes what is idle
	reaping bool
	closed  bool
}

// NewPool makes a pool. Its first instance is made when it is needed; Try makes
// one at once. Close must be called.
func NewPool(m *Module, s Settings) (*Pool, error) {
	// wazero takes it for granted that the memory that a module begins with is
	// there.
	if need := m.code.memory; need > s.Memory {
		return nil, fmt.Errorf("%w: the module begins with %d bytes of memory, limits.memory is %d", ErrABI, need, s.Memory)
	}
	s.Shared = s.Shared && !s.Fresh && m.code.shares
	if s.Fresh {
		if err := m.fits(); err != nil {
			return nil, err
		}
	}
	s.Init, s.Grace = cmp.Or(s.Init, InitTimeout), cmp.Or(s.Grace, Grace)
	p := &Pool{module: m, settings: s, seats: sync.Pool{New: func() any { return &seat{} }}}
	p.timer = time.AfterFunc(time.Hour, p.growIfHeld)
	p.reaper = time.AfterFunc(time.Hour, p.reap)
	p.timer.Stop()
	p.reaper.Stop()
	return p, nil
}

// Shared reports whether calls run beside each other in an instance.
func (p *Pool) Shared() bool { return p.settings.Shared }

// Memory is the size of the largest idle instance, in bytes.
func (p *Pool) Memory() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := int64(0)
	for _, in := range p.idle {
		most = max(most, int64(in.module.Memory().Size()))
	}
	return most
}

// Try makes an instance, so that a module that cannot even start is known.
func (p *Pool) Try(ctx context.Context) error {
	p.mu.Lock()
	p.alive++
	p.mu.Unlock()
	in, err := p.create(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.alive--
		return err
	}
	p.free(in)
	return nil
}

func (p *Pool) create(ctx context.Context) (*instance, error) {
	return newInstance(ctx, p.module, p.settings)
}

// Invoke runs one invocation: alone in an instance, or beside others in a shared
// pool. It waits for an instance as long as the call's outer context lives. An
// instance that did not return cleanly is discarded. The error is ErrTimeout,
// ErrTrap, ErrExit, ErrBudget, ErrDeadlock, or that of making an instance, in a
// host.Crowded when others were in the instance that went down.
func (p *Pool) Invoke(c *host.Call) error {
	if p.settings.Shared && len(c.Deliveries()) != 1 {
		return fmt.Errorf("%w: a call that shares its instance has one delivery, not %d", ErrABI, len(c.Deliveries()))
	}
	s := p.seats.Get().(*seat)
	defer p.seats.Put(s)
	*s = seat{call: c, turn: s.turn}
	if p.settings.Shared && c.Company > 0 {
		return p.enterLane(s)
	}
	p.mu.Lock()
	switch n := len(p.idle); {
	case n > 0:
		in := p.idle[n-1]
		p.idle = p.idle[:n-1]
		gather := in.shared && p.crowd.gathers()
		p.mu.Unlock()
		if gather {
			runtime.Gosched()
		}
		return p.drive(in, s, true)
	case p.alive == 0:
		p.alive++
		p.mu.Unlock()
		return p.found(s, false)
	}
	s.wait()
	s.queued = time.Now()
	p.queue = append(p.queue, s)
	if n := len(p.resting); n > 0 {
		p.resting[n-1].rouse()
	}
	p.arm()
	p.mu.Unlock()
	return p.await(s)
}

// arm has the pool look in a while whether calls still wait.
func (p *Pool) arm() {
	if len(p.queue) > 0 && p.alive < p.settings.Max && !p.armed && !p.closed {
		p.armed = true
		p.timer.Reset(growAfter)
	}
}

// await waits for a seat's turn.
func (p *Pool) await(s *seat) error {
	select {
	case t := <-s.turn:
		return p.act(s, t)
	default:
	}
	select {
	case t := <-s.turn:
		return p.act(s, t)
	case <-s.call.Outer().Done():
	}
	if p.leave(s) {
		return fmt.Errorf("%w: wait for an instance: %v", ErrTimeout, context.Cause(s.call.Outer()))
	}
	return p.act(s, <-s.turn)
}

func (p *Pool) act(s *seat, t turn) error {
	switch {
	case t.create:
		return p.found(s, t.apart)
	case t.drive == nil:
		return s.err
	}
	t.drive.apart = t.apart || t.drive.apart
	return p.drive(t.drive, s, s.id == 0)
}

// leave takes a seat out of the queues; false says that it is in none.
func (p *Pool) leave(s *seat) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range []*[]*seat{&p.queue, &p.apart} {
		for i, other := range *q {
			if other == s {
				*q = append((*q)[:i], (*q)[i+1:]...)
				return true
			}
		}
	}
	return false
}

// found makes an instance and drives it, for a seat that is in no queue.
func (p *Pool) found(s *seat, apart bool) error {
	in, err := p.create(s.call.Outer())
	if err == nil {
		in.apart = apart
		return p.drive(in, s, true)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone(apart)
	return err
}

// gone takes an instance off the count. The lane's is not counted; the next one
// of the lane takes its place.
func (p *Pool) gone(apart bool) {
	if apart {
		p.nextApart(nil)
		return
	}
	p.lost()
}

// lost takes an instance off the count. If it was the last one, the next in the
// queue makes another.
func (p *Pool) lost() {
	p.alive--
	if p.alive == 0 && len(p.queue) > 0 {
		p.alive++
		p.pop().turn <- turn{create: true}
	}
	p.arm()
}

// pop takes the oldest seat off the queue.
func (p *Pool) pop() *seat {
	s := p.queue[0]
	p.queue = drop(p.queue, 1)
	return s
}

// growIfHeld makes one more instance when the oldest call has waited for so long
// that all instances must be held.
func (p *Pool) growIfHeld() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = false
	if len(p.queue) > 0 && p.alive < p.settings.Max && time.Since(p.queue[0].queued) >= growAfter {
		p.alive++
		p.pop().turn <- turn{create: true}
	}
	p.arm()
}

// drive runs an instance on the goroutine of a seat until that is over, and
// hands it on. enter says that the seat is not in the instance yet.
func (p *Pool) drive(in *instance, me *seat, enter bool) error {
	in.driver = me
	var room [maxBoard]*seat
	for {
		fresh := room[:0]
		if enter {
			fresh = append(fresh, me)
		}
		fresh = p.board(in, fresh)
		enter = false
		if in.image != nil && len(fresh) > 0 {
			in.image.restore()
			in.clean()
		}
		if err := in.cross(fresh, time.Now()); err != nil {
			return p.discard(in, me, err)
		}
		if me.over {
			p.handOn(in)
			return me.err
		}
		if err := p.restOutside(in); err != nil {
			return p.discard(in, me, err)
		}
	}
}

// maxBoard bounds how many calls come in at one crossing.
const maxBoard = 64

// board takes calls from the queue into a shared instance. One of the lane takes
// company only with its first.
func (p *Pool) board(in *instance, fresh []*seat) []*seat {
	if !in.shared || in.apart && len(fresh) == 0 {
		return fresh
	}
	full := p.full(in)
	p.mu.Lock()
	defer p.mu.Unlock()
	if in.apart {
		return p.boardLane(fresh)
	}
	if full && !in.retired && len(in.seats) > 0 {
		in.retired, in.uncounted = true, true
		p.lost() // another one may be made while its calls end
	}
	if in.retired {
		return fresh
	}
	n := min(len(p.queue), cap(fresh)-len(fresh))
	fresh = append(fresh, p.queue[:n]...)
	p.queue = drop(p.queue, n)
	p.crowd.came(len(fresh))
	return fresh
}

// restOutside waits for news, where new calls find the instance.
func (p *Pool) restOutside(in *instance) error {
	takes := !in.retired && !in.apart
	p.mu.Lock()
	if takes && len(p.queue) > 0 {
		p.mu.Unlock()
		return nil
	}
	if takes {
		p.resting = append(p.resting, in)
	}
	p.mu.Unlock()
	err := in.rest()
	if takes {
		p.mu.Lock()
		p.resting = without(p.resting, in)
		p.mu.Unlock()
	}
	return err
}

func without(list []*instance, in *instance) []*instance {
	for i, other := range list {
		if other == in {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}

// rouse has the driver of a resting instance look around.
func (in *instance) rouse() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// discard ends an instance that went down, and its calls.
func (p *Pool) discard(in *instance, me *seat, err error) error {
	in.down(err)
	in.close() // it is of no further use, whatever closing says
	p.mu.Lock()
	defer p.mu.Unlock()
	if !in.uncounted {
		p.gone(in.apart)
	}
	return me.err
}

// handOn gives an instance to another of its calls, or to the next in the
// queue, or puts it by.
func (p *Pool) handOn(in *instance) {
	in.driver = nil
	for _, s := range in.seats {
		in.driver = s
		s.turn <- turn{drive: in}
		return
	}
	in.retired = in.retired || p.full(in)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !in.apart {
		p.free(in)
		return
	}
	if !in.retired && p.nextApart(in) {
		return
	}
	if in.apart = false; !in.retired && !p.closed && p.alive < p.settings.Max {
		p.alive++
		p.free(in)
		return
	}
	in.close()
	if len(p.apart) > 0 {
		p.nextApart(nil)
	}
}

// full reports whether an instance has grown so much that a new one is better.
func (p *Pool) full(in *instance) bool {
	size := int64(in.module.Memory().Size())
	if in.image != nil {
		return in.image.grown()
	}
	return size > in.born && size > p.settings.Memory/4*3
}

// free gives an instance without calls to the next in the queue, or puts it by.
func (p *Pool) free(in *instance) {
	switch {
	case in.retired || p.closed:
		in.close()
		if !in.uncounted {
			p.lost()
		}
	case len(p.queue) > 0:
		p.pop().turn <- turn{drive: in}
	default:
		in.since = time.Now()
		p.idle = append(p.idle, in)
		if !p.reaping {
			p.reaping = true
			p.reaper.Reset(IdleTimeout)
		}
	}
}

// reap closes instances that nothing called for a while.
func (p *Pool) reap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	kept := p.idle[:0]
	for _, in := range p.idle {
		if time.Since(in.since) < IdleTimeout {
			kept = append(kept, in)
			continue
		}
		in.close()
		p.alive--
	}
	clear(p.idle[len(kept):])
	p.idle = kept
	if p.reaping = len(kept) > 0; p.reaping {
		p.reaper.Reset(IdleTimeout / 2)
	}
}

// Close closes the instances. Those that run are closed when they return.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.timer.Stop()
	p.reaper.Stop()
	var first error
	for _, in := range p.idle {
		if err := in.close(); err != nil && first == nil {
			first = err
		}
	}
	p.alive -= len(p.idle)
	p.idle = nil
	return first
}
