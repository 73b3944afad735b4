package host

import (
	"context"
	"sync"
	"time"
)

// BatchID is the id of the batch as a whole; deliveries count up from it.
const BatchID uint32 = 1

// MaxReason bounds the text of an outcome, in bytes; what is longer is cut.
const MaxReason = 4 << 10

// Limits bounds one invocation. See manifests.Limits for the meaning of each.
type Limits struct {
	HTTPRequests int
	Buffers      int64
	Publishes    int
	PublishSize  int64
	Rows         RowLimit
	Response     int64
	Blob         int64
	Tickets      int
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
	Epoch    string // of a replay; "" for live traffic

	outer    context.Context // the host's
	ctx      context.Context // the invocation's, made when something asks for it
	cancel   context.CancelFunc
	deadline time.Time
	grants   *Grants
	limits   Limits
	log      Logger

	deliveries []Delivery
	batch      Delivery // what the batch as a whole said and published
	open       uint32   // the delivery between begin and end
	tx         Tx
	txDone     bool
	committed  bool
	timeout    time.Duration
	timedOut   error // the cause of the context's end at the timeout

	publishes, requests int
	lastError           string
	result              []byte

	tables
}

// tables holds what operations beside the guest's thread touch too.
type tables struct {
	mu          sync.Mutex
	buffers     map[int32][]byte
	bufferBytes int64
	nextBuffer  int32
	tickets     map[int32]*Ticket
	nextTicket  int32
	running     sync.WaitGroup
}

// NewCall makes the state of an invocation of messages. ctx ends when the host
// cannot wait any longer; the invocation's own time begins with StartClock.
// Close must be called.
func NewCall(ctx context.Context, function string, grants *Grants, limits Limits, log Logger, messages []*Message) *Call {
	c := &Call{Function: function, grants: grants, limits: limits, log: log, outer: ctx}
	c.deliveries = make([]Delivery, len(messages))
	for i, m := range messages {
		c.deliveries[i].Message = m
	}
	return c
}

// Context is the invocation's: it ends at the timeout, or when the host drains.
// It is the guest's thread that asks.
func (c *Call) Context() context.Context {
	switch {
	case c.ctx != nil:
	case c.deadline.IsZero():
		return c.outer // the clock has not begun
	default:
		c.ctx, c.cancel = context.WithDeadlineCause(c.outer, c.deadline, c.timedOut)
	}
	return c.ctx
}

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

// StartClock begins the handler's time. Whoever runs the guest calls it when
// there is an instance: the wait for one does not count.
func (c *Call) StartClock() {
	if c.timeout > 0 {
		c.deadline = time.Now().Add(c.timeout)
	}
}

// Deliveries returns the deliveries in order; the guest's id of the first is
// BatchID+1.
func (c *Call) Deliveries() []Delivery { return c.deliveries }

// Delivery returns a delivery by the guest's id, the batch itself for BatchID
// and nil for an id that is not this invocation's.
func (c *Call) Delivery(id uint32) *Delivery {
	if id == BatchID {
		return &c.batch
	}
	if i := int64(id) - int64(BatchID) - 1; i >= 0 && i < int64(len(c.deliveries)) {
		return &c.deliveries[i]
	}
	return nil
}

// Open returns the index of the delivery that the handler has begun and not
// ended, -1 when there is none.
func (c *Call) Open() int { return int(c.open) - int(BatchID) - 1 }

// Start opens the transaction when the function has a write grant. It waits
// for the writer as long as the invocation may run.
func (c *Call) Start() error {
	if c.grants.Write == "" {
		return nil
	}
	tx, err := c.grants.Databases[c.grants.Write].Begin(c.Context())
	if err != nil {
		return err
	}
	c.tx = tx
	return nil
}

// Begin opens a delivery: what the guest does until its end belongs to it.
func (c *Call) Begin(id uint32) error {
	d := c.Delivery(id)
	switch {
	case d == nil || id == BatchID:
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
	if id == BatchID {
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

// Commit makes the transaction's effects durable if any delivery is acked and
// the batch as a whole did not fail; otherwise it undoes them. Without a
// transaction it does nothing.
func (c *Call) Commit(ctx context.Context) error {
	if c.tx == nil || c.txDone {
		return nil
	}
	c.txDone = true
	if !c.anyAcked() {
		return c.tx.Rollback()
	}
	c.committed = true
	return c.tx.Commit(ctx)
}

func (c *Call) anyAcked() bool {
	for i := range c.deliveries {
		if c.deliveries[i].Outcome.Disposition == Ack {
			return true
		}
	}
	return false
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

// Fail keeps the text of an error for the guest and returns its Errno.
func (c *Call) Fail(err error) Errno {
	c.lastError = err.Error()
	if len(c.lastError) > MaxReason {
		c.lastError = c.lastError[:MaxReason]
	}
	return ErrnoOf(err)
}

// LastError is the text of the guest's last refusal.
func (c *Call) LastError() string { return c.lastError }

// Keep keeps an answer that did not fit the guest's buffer, until the next one.
func (c *Call) Keep(result []byte) { c.result = result }

// Kept returns the answer that was kept last.
func (c *Call) Kept() []byte { return c.result }
