package host

import "context"

// Ticket is one operation that a guest started and has not collected.
type Ticket struct {
	// Number is the guest's, and Owner an id of the call that it knows; whoever
	// runs the guest sets and reads them, on the guest's thread.
	Number int32
	Owner  uint32
	Call   *Call

	done   chan struct{}
	cancel context.CancelFunc
	value  any
	err    error
}

// Done is closed when the operation has finished.
func (t *Ticket) Done() <-chan struct{} { return t.done }

// Value returns the operation's answer; only after Done.
func (t *Ticket) Value() (any, error) { return t.value, t.err }

// Cancel ends the operation's context.
func (t *Ticket) Cancel() {
	if t.cancel != nil {
		t.cancel()
	}
}

// start runs an operation beside the guest and returns its ticket.
func (c *Call) start(op func(ctx context.Context) (any, error)) (*Ticket, error) {
	t, err := c.issue()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(c.Context())
	t.cancel = cancel
	c.running.Go(func() {
		defer t.finish()
		defer cancel()
		defer func() {
			if p := recover(); p != nil { // a decoder that stumbles over its input, say
				t.err = Errorf(Failed, "the operation broke off: %v", p)
			}
		}()
		t.value, t.err = op(ctx)
	})
	return t, nil
}

// answered returns a ticket for an answer that is there already.
func (c *Call) answered(value any) (*Ticket, error) {
	t, err := c.issue()
	if err != nil {
		return nil, err
	}
	t.value = value
	t.finish()
	return t, nil
}

// issue makes a ticket, if the invocation may have one more.
func (c *Call) issue() (*Ticket, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.tickets) >= c.limits.Tickets {
		return nil, Errorf(Limit, "%d operations are in flight, limits.tickets is %d", len(c.tickets), c.limits.Tickets)
	}
	if c.tickets == nil {
		c.tickets = map[*Ticket]struct{}{}
	}
	t := &Ticket{Call: c, done: make(chan struct{})}
	c.tickets[t] = struct{}{}
	return t, nil
}

func (t *Ticket) finish() {
	close(t.done)
	if t.Call.finished != nil {
		t.Call.finished(t)
	}
}

// cancelTickets ends the operations that nobody waits for any more.
func (c *Call) cancelTickets() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := range c.tickets {
		t.Cancel()
	}
}

// Collect forgets a ticket whose answer the guest has taken.
func (c *Call) Collect(t *Ticket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tickets, t)
}

// EachTicket calls f for every ticket that is not collected.
func (c *Call) EachTicket(f func(*Ticket)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := range c.tickets {
		f(t)
	}
}

// AddBuffer puts bytes into the invocation's table and returns their handle.
// The bytes are not copied and must not be changed afterwards.
func (c *Call) AddBuffer(b []byte) (int32, error) {
	if err := c.charge(len(b)); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.buffers == nil {
		c.buffers = map[int32][]byte{}
	}
	c.nextBuffer++
	c.buffers[c.nextBuffer] = b
	return c.nextBuffer, nil
}

// bufferCost is what a buffer counts beside its bytes, so that empty ones are
// bounded too.
const bufferCost = 256

// charge takes bytes out of the budget of limits.buffers.
func (c *Call) charge(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bufferBytes+int64(n)+bufferCost > c.limits.Buffers {
		return Errorf(TooLarge, "buffers of %d bytes and %d more are above limits.buffers %d", c.bufferBytes, n, c.limits.Buffers)
	}
	c.bufferBytes += int64(n) + bufferCost
	return nil
}

// Buffer returns the bytes of a handle; handle 0 is empty.
func (c *Call) Buffer(handle int32) ([]byte, error) {
	if handle == 0 {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.buffers[handle]
	if !ok {
		return nil, Errorf(Invalid, "buffer %d is not open", handle)
	}
	return b, nil
}

// CloseBuffer gives a buffer's bytes back to the budget.
func (c *Call) CloseBuffer(handle int32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.buffers[handle]
	if !ok {
		return Errorf(Invalid, "buffer %d is not open", handle)
	}
	c.bufferBytes -= int64(len(b)) + bufferCost
	delete(c.buffers, handle)
	return nil
}
