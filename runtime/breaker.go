package runtime

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pelton-run/pelton/host"
)

// BreakerAfter is how many different messages have to fail in a row, with not one
// success between them, for the breaker to open: then it is not the messages.
const BreakerAfter = 32

// breaker stops a function from using up its messages' attempts while what it
// depends on is down. While it is open nothing is charged and one message at a
// time is tried, at the last step of the schedule, until one succeeds. It is safe
// for concurrent use.
type breaker struct {
	off   bool // by the manifest
	pause time.Duration

	failing atomic.Bool   // whether anything failed since the last success
	probe   chan struct{} // holds the right to try while it is open

	mu     sync.Mutex
	failed map[failure]struct{} // since the last success, while it is closed
	open   bool
	next   time.Time // when to try again
	reason string    // the last error
}

// failure names a message within a function.
type failure struct {
	trigger  string
	sequence uint64
}

func newBreaker(on bool, pause time.Duration) *breaker {
	b := &breaker{off: !on, pause: pause, probe: make(chan struct{}, 1), failed: map[failure]struct{}{}}
	b.probe <- struct{}{}
	return b
}

// fail takes note of a message that is to be retried, and reports whether the
// breaker is open.
func (b *breaker) fail(m *host.Message, text string, now time.Time) bool {
	if b.off || m.Stream == "" {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failing.Store(true)
	b.reason = text
	if !b.open {
		b.failed[failure{m.Trigger, m.StreamSeq}] = struct{}{}
		b.open = len(b.failed) >= BreakerAfter
	}
	if b.open {
		clear(b.failed)
		b.next = now.Add(b.pause)
	}
	return b.open
}

// settled takes note of a message that its handler gave up on: that is no success,
// and no sign of an outage either.
func (b *breaker) settled(m *host.Message) {
	if m.Stream == "" || !b.failing.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.failed)
}

// succeed takes note of a message that was handled well, and reports whether that
// closed the breaker.
func (b *breaker) succeed(m *host.Message) (closed bool) {
	if m.Stream == "" || !b.failing.Load() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	closed = b.open
	b.open = false
	clear(b.failed)
	b.failing.Store(false)
	return closed
}

// trouble says that the breaker is open and why, "" when it is closed.
func (b *breaker) trouble() string {
	if !b.failing.Load() {
		return ""
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return ""
	}
	return fmt.Sprintf("backing off: %d different messages failed in a row, the last with: %s; one is tried every %s", BreakerAfter, b.reason, b.pause)
}

// enter waits until a message may be tried. release is nil while the breaker is
// closed; otherwise the caller tries one message and calls it then.
func (b *breaker) enter(ctx context.Context) (release func(), err error) {
	for b.isOpen() {
		select {
		case <-b.probe:
		case <-time.After(time.Second): // it may have closed meanwhile
			continue
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if err := b.waitTurn(ctx); err != nil {
			b.probe <- struct{}{}
			return nil, err
		}
		return func() { b.probe <- struct{}{} }, nil
	}
	return nil, nil
}

func (b *breaker) isOpen() bool {
	if !b.failing.Load() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

func (b *breaker) waitTurn(ctx context.Context) error {
	b.mu.Lock()
	wait := time.Until(b.next)
	b.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
