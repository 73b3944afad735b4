package host

import (
	"context"
	"sync"
	"time"
)

// BatchID is the id of the batch as a whole, and deliveries count up from it,
// unless Number says otherwise.
const BatchID uint32 = 1

// MaxReason bounds the text of an outcome, in bytes; what is longer is cut.
const MaxReason = 4 << 10

// Limits bounds one invocation. See manifests.Limits for the meaning of each.
type Limits struct {
	HTTPRequests int
	Buffers      int64
	Publishes    int
	PublishSize  int64
	Requests     int
	Hops         int // 0 is no limit
	Rows         RowLimit
	Response     int64
	Blob         int64
	Tickets      int
	HostCalls    uint64        // 0 is no limit
	CPU          time.Duration // 0 is no limit
	SQLCalls     int           // 0 is no limit
}

// Logger takes the log records of a guest. m is nil when the guest did not say
// which delivery it spoke for.
type Logger interface {
	Log(m *Message, level int, text string, attrs [][2]string)
}

// Delivery is one message of an invocation and what the handler made of it.
type Delivery struct {
	Message  *Message
	Outcome  Outcome
	Response *Response

	publishes []*Outgoing    // that wait for the commit
	occurs    map[string]int // of identical publishes
}

// Call is the state of one invocation: its deliveries, its transaction, its
// buffers and its tickets. The guest's thread calls its methods one at a time;
// operations that it started run beside it.
type Call struct {
	Function string
	// Company is how many deliveries may share an instance with this one, itself
	// counted, after an instance went down under them; 0 is no bound.
	Company int
	// Usage is what the invocation cost, once it has ended.
	Usage Usage

	outer    context.Context // the host's
	ctx      context.Context // the invocation's, made when something asks for it
	cancel   context.CancelFunc
	deadline time.Time
	grants   *Grants
	limits   Limits
	log      Logger

	batchID    uint32 // the guest's id of the batch, 0 when it has none
	firstID    uint32 // and of the first delivery
	deliveries []Delivery
	batch      Delivery // what the batch as a whole said and published
	open       uint32   // the delivery between begin and end
	lostBy     uint32   // the delivery that was open when the transaction was lost
	tx         Tx
	txDone     bool
	timeout    time.Duration
	timedOut   error // the cause of the context's end at the timeout

	publishes, requests, asked, statements int
	movable                                bool          // the deadline moves, so no timer can keep it
	finished                               func(*Ticket) // told of each operation that has finished

	tables
}

// Usage is what an invocation cost.
type Usage struct {
	Guest     time.Duration // wall time inside the guest, waits for operations not counted
	Fuel      uint64        // of the metering, rounded up to whole refills
	HostCalls uint64
}

// tables holds what operations beside the guest's thread touch too.
type tables struct {
	mu          sync.Mutex
	buffers     map[int32][]byte
	bufferBytes int64
	nextBuffer  int32
	tickets     map[*Ticket]struct{} // not collected
	running     sync.WaitGroup
}

// NewCall makes the state of an invocation of messages. ctx ends when the host
// cannot wait any longer; the invocation's own time begins with StartClock.
// Close must be called.
func NewCall(ctx context.Context, function string, grants *Grants, limits Limits, log Logger, messages []*Message) *Call {
	c := &Call{}
	c.Reset(ctx, function, grants, limits, log, len(messages))
	for i, m := range messages {
		c.deliveries[i].Message = m
	}
	return c
}

// Reset makes a call that has been closed the state of another invocation, of n
// messages that the caller puts into Deliveries. The deliveries of the one before
// are gone.
func (c *Call) Reset(ctx context.Context, function string, grants *Grants, limits Limits, log Logger, n int) {
	deliveries := c.deliveries
	*c = Call{Function: function, grants: grants, limits: limits, log: log, outer: ctx, batchID: BatchID, firstID: BatchID + 1}
	if cap(deliveries) < n || cap(deliveries) > maxKept {
		deliveries = make([]Delivery, n)
	}
	c.deliveries = deliveries[:n]
	clear(c.deliveries)
}

// maxKept is how many deliveries a call keeps room for.
const maxKept = 1024

// Context is the invocation's: it ends at the timeout, or when the host drains.
// It is the guest's thread that asks.
func (c *Call) Context() context.Context {
	switch {
	case c.ctx != nil:
	case c.deadline.IsZero():
		return c.outer // the clock has not begun
	case c.movable:
		ctx, cancel := context.WithCancelCause(c.outer)
		c.ctx, c.cancel = ctx, func() { cancel(c.timedOut) }
	default:
		c.ctx, c.cancel = context.WithDeadlineCause(c.outer, c.deadline, c.timedOut)
	}
	return c.ctx
}

// Outer is the context of whoever made the call: it ends when the host cannot
// wait any longer.
func (c *Call) Outer() context.Context { return c.outer }

// Number sets the ids that the guest knows the batch and its first delivery by;
// batch 0 is none. Whoever runs the guest calls it, before it runs.
func (c *Call) Number(batch, first uint32) { c.batchID, c.firstID = batch, first }

// OnFinish sets what is told of each operation that has finished, from a
// goroutine of its own. Whoever runs the guest calls it, before it runs.
func (c *Call) OnFinish(f func(*Ticket)) { c.finished = f }

// Ended returns why the invocation's time is over, nil while it is not. It is
// cheap, and good from one goroutine.
func (c *Call) Ended(now time.Time) error {
	if c.outer.Err() != nil {
		return context.Cause(c.outer)
	}
	if !c.deadline.IsZero() && !now.Before(c.deadline) {
		return c.timedOut
	}
	return nil
}

// SetTimeout says how long the handler may run, and what its context's cause is
// then.
func (c *Call) SetTimeout(d time.Duration, cause error) { c.timeout, c.timedOut = d, cause }

// StartClock begins the handler's time, now. Whoever runs the guest calls it when
// there is an instance: the wait for one does not count.
func (c *Call) StartClock(now time.Time) {
	if c.timeout > 0 {
		c.deadline = now.Add(c.timeout)
	}
}

// StartMovableClock begins the handler's time where others share its instance:
// whoever runs the guest puts the deadline off by what they take of it, and
// calls Expire when it has passed.
func (c *Call) StartMovableClock(now time.Time) {
	c.StartClock(now)
	c.movable = true
}

// Postpone puts the deadline off.
func (c *Call) Postpone(d time.Duration) {
	if !c.deadline.IsZero() {
		c.deadline = c.deadline.Add(d)
	}
}

// Deadline is when the handler's time is over; zero is never.
func (c *Call) Deadline() time.Time { return c.deadline }

// Expire ends the context of an invocation whose clock is movable.
func (c *Call) Expire() {
	if c.Context(); c.cancel != nil {
		c.cancel()
	}
}

// CountCall counts a call of the guest, and refuses to count on above the limit.
func (c *Call) CountCall() error {
	c.Usage.HostCalls++
	if c.limits.HostCalls > 0 && c.Usage.HostCalls > c.limits.HostCalls {
		return Errorf(Limit, "limits.host_calls of %d is reached", c.limits.HostCalls)
	}
	return nil
}

// Spend refuses guest time above the limit.
func (c *Call) Spend(guest time.Duration) error {
	if c.limits.CPU > 0 && guest > c.limits.CPU {
		return Errorf(Limit, "limits.cpu of %s is reached", c.limits.CPU)
	}
	return nil
}

// Deliveries returns the deliveries in order.
func (c *Call) Deliveries() []Delivery { return c.deliveries }

// Delivery returns a delivery by the guest's id, the batch itself for BatchID
// and nil for an id that is not this invocation's.
func (c *Call) Delivery(id uint32) *Delivery {
	if id == c.batchID && id != 0 {
		return &c.batch
	}
	if i := int64(id) - int64(c.firstID); i >= 0 && i < int64(len(c.deliveries)) {
		return &c.deliveries[i]
	}
	return nil
}

// Open returns the index of the delivery that the handler has begun and not
// ended, -1 when there is none.
func (c *Call) Open() int {
	if c.open == 0 {
		return -1
	}
	return int(c.open - c.firstID)
}

// Begin opens a delivery: what the guest does until its end belongs to it.
func (c *Call) Begin(id uint32) error {
	d := c.Delivery(id)
	switch {
	case d == nil || d == &c.batch:
		return Errorf(Invalid, "delivery %d is not in this batch", id)
	case d.Outcome.Disposition != Unsettled:
		return Errorf(Invalid, "delivery %d has ended", id)
	case c.open != 0 && c.tx != nil:
		return Errorf(Invalid, "delivery %d is still open, and a transaction takes one after another", c.open)
	}
	c.open = id
	if c.tx != nil && len(c.deliveries) > 1 {
		return c.tx.Savepoint(c.Context())
	}
	return nil
}

// End settles a delivery, or with BatchID all that have not ended themselves.
// In a transaction everything but Ack undoes what was done for it.
func (c *Call) End(id uint32, o Outcome) error {
	d := c.Delivery(id)
	if d == nil || d.Outcome.Disposition != Unsettled {
		return Errorf(Invalid, "delivery %d is not open", id)
	}
	if o.Disposition < Ack || o.Disposition > Term {
		return Errorf(Invalid, "disposition %d is not one", o.Disposition)
	}
	if len(o.Reason) > MaxReason {
		o.Reason = o.Reason[:MaxReason]
	}
	if o.Disposition != Ack {
		d.publishes = nil
	}
	d.Outcome = o
	if d == &c.batch {
		return nil
	}
	wasOpen := c.open == id
	if wasOpen {
		c.open = 0
	}
	if c.tx == nil || !wasOpen || len(c.deliveries) == 1 {
		return nil
	}
	if o.Disposition == Ack {
		return c.tx.Release(c.Context())
	}
	return c.tx.Restore(c.Context())
}

// Finish gives every delivery that has not ended itself the outcome of the
// batch. One that was left without any word counts as a failure of the handler.
// In a transaction a batch that fails takes all of its deliveries with it: what
// they did is undone together. The error is the transaction's.
func (c *Call) Finish() error {
	rest := c.batch.Outcome
	if rest.Disposition == Unsettled {
		rest = Outcome{Disposition: Nak, Reason: "handler returned without settling the delivery"}
	}
	failed := c.tx != nil && c.batchFailed()
	for i := range c.deliveries {
		d := &c.deliveries[i]
		if d.Outcome.Disposition == Unsettled || failed && d.Outcome.Disposition == Ack {
			d.Outcome = rest
		}
	}
	if d := c.Delivery(c.open); d != nil && c.tx != nil && len(c.deliveries) > 1 && d.Outcome.Disposition != Ack {
		// It was left open, and what it did must not stay.
		if err := c.tx.Restore(c.Context()); err != nil && c.anyAcked() {
			return err
		}
	}
	return nil
}

func (c *Call) batchFailed() bool {
	d := c.batch.Outcome.Disposition
	return d == Nak || d == Term
}

// Close cancels what still runs, waits for it, and undoes a transaction that
// was not committed.
func (c *Call) Close() {
	if c.cancel != nil {
		c.cancel()
	}
	c.cancelTickets()
	c.running.Wait()
	if c.tx != nil && !c.txDone {
		c.txDone = true
		c.tx.Rollback() // the state is the same whether or not it reports an error
	}
	c.buffers, c.tickets = nil, nil
}

// Lost reports whether the transaction was undone under the handler. Then the open
// delivery is the one that was so at that moment.
func (c *Call) Lost() bool {
	if c.tx == nil || c.txDone || !c.tx.Lost() {
		return false
	}
	c.open = c.lostBy
	return true
}

// afterSQL notes by which delivery the transaction was lost.
func (c *Call) afterSQL(err error) {
	if err != nil && c.lostBy == 0 && c.tx.Lost() {
		c.lostBy = c.open
	}
}

// CloseOpen forgets which delivery was open: it is not the one to blame.
func (c *Call) CloseOpen() { c.open = 0 }

// Respond answers a request delivery.
func (c *Call) Respond(id uint32, r *Response) error {
	d := c.Delivery(id)
	switch {
	case d == nil || d.Message == nil || d.Message.Reply == "" || d.Message.Stream != "":
		return Errorf(Invalid, "delivery %d is not a request", id)
	case d.Response != nil:
		return Errorf(Conflict, "the request is answered already")
	case int64(len(r.Data)) > c.limits.Response:
		return Errorf(TooLarge, "the answer has %d bytes, limits.response is %d", len(r.Data), c.limits.Response)
	}
	d.Response = r
	return nil
}

// Log passes a record of the guest on.
func (c *Call) Log(id uint32, level int, text string, attrs [][2]string) {
	var m *Message
	if d := c.Delivery(id); d != nil {
		m = d.Message
	}
	c.log.Log(m, level, text, attrs)
}
