package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pelton-run/pelton/host"
)

// InitTimeout bounds instantiation and _initialize.
const InitTimeout = 30 * time.Second

// Grace is how long a handler may still return after its deadline; then its
// instance goes.
const Grace = time.Second

// Settings is how a pool runs its instances.
type Settings struct {
	Max    int               // instances at one time
	Memory int64             // bytes of each
	Env    map[string]string // what the guest sees as its environment
	Fresh  bool              // each invocation gets an instance that none had before
}

// Pool is the bounded set of a function's warm instances. It is safe for
// concurrent use.
type Pool struct {
	module   *Module
	settings Settings
	places   chan struct{} // one for each instance that may run

	mu     sync.Mutex
	idle   []*instance
	closed bool
}

// NewPool makes a pool and its first instance, so that a module that cannot
// even start is known at once. Close must be called.
func NewPool(ctx context.Context, m *Module, s Settings) (*Pool, error) {
	// wazero takes it for granted that the memory that a module begins with is
	// there.
	if need := int64(m.compiled.ExportedMemories()["memory"].Min()) << 16; need > s.Memory {
		return nil, fmt.Errorf("%w: the module begins with %d bytes of memory, limits.memory is %d", ErrABI, need, s.Memory)
	}
	p := &Pool{module: m, settings: s, places: make(chan struct{}, s.Max)}
	in, err := p.create(ctx)
	if err != nil {
		return nil, err
	}
	p.idle = append(p.idle, in)
	return p, nil
}

func (p *Pool) create(ctx context.Context) (*instance, error) {
	ctx, cancel := context.WithTimeout(ctx, InitTimeout)
	defer cancel()
	return newInstance(ctx, p.module, p.settings)
}

// Invoke runs one invocation on an instance of its own, waiting for one as long
// as the invocation's context lives. An instance that did not return cleanly is
// discarded. The error is ErrTimeout, ErrTrap or ErrExit, or that of making an
// instance.
func (p *Pool) Invoke(c *host.Call) error {
	ctx := c.Context()
	select {
	case p.places <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: wait for an instance: %v", ErrTimeout, context.Cause(ctx))
	}
	defer func() { <-p.places }()
	in, err := p.take(ctx)
	if err != nil {
		return err
	}
	c.StartClock()
	if err := in.run(c); err != nil {
		in.close() // it is of no further use, whatever closing says
		return err
	}
	if in.module.IsClosed() {
		return fmt.Errorf("%w: the guest ended its program", ErrExit)
	}
	if p.settings.Fresh {
		return in.close()
	}
	p.give(in)
	return nil
}

func (p *Pool) take(ctx context.Context) (*instance, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		in := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return in, nil
	}
	p.mu.Unlock()
	return p.create(ctx)
}

func (p *Pool) give(in *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		in.close()
		return
	}
	p.idle = append(p.idle, in)
}

// Close closes the instances. Those that run are closed when they return.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var first error
	for _, in := range p.idle {
		if err := in.close(); err != nil && first == nil {
			first = err
		}
	}
	p.idle = nil
	return first
}
