package host

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
)

func newTestCall(n int) *Call {
	messages := make([]*Message, n)
	for i := range messages {
		messages[i] = &Message{Subject: "a.b", Stream: "S", StreamSeq: uint64(i + 1)}
	}
	return NewCall(context.Background(), "f", &Grants{}, Limits{Tickets: 2, CPU: time.Second, HostCalls: 2}, nil, messages)
}

// A delivery is settled once, and an id of another invocation is refused.
func TestSettleOnce(t *testing.T) {
	c := newTestCall(2)
	defer c.Close()
	c.Number(10, 11)
	ack, nak := Outcome{Disposition: Ack}, Outcome{Disposition: Nak}
	tests := []struct {
		id   uint32
		o    Outcome
		fine bool
	}{
		{11, ack, true}, {11, nak, false}, {11, ack, false}, {12, Outcome{Disposition: 9}, false}, {12, nak, true},
		{9, ack, false}, {13, ack, false}, {0, ack, false}, {1, ack, false}, {2, ack, false},
	}
	for _, tt := range tests {
		if err := c.End(tt.id, tt.o); (err == nil) != tt.fine || err != nil && !errors.Is(err, Invalid) {
			t.Errorf("end %d with %s: %v, want fine %v", tt.id, tt.o.Disposition, err, tt.fine)
		}
	}
	if d := c.Deliveries(); d[0].Outcome.Disposition != Ack || d[1].Outcome.Disposition != Nak {
		t.Errorf("outcomes %+v", d)
	}
}

// A call that is used again has nothing of the one before.
func TestReset(t *testing.T) {
	c := newTestCall(3)
	c.Number(10, 11)
	c.Begin(12)
	c.End(11, Outcome{Disposition: Ack})
	c.CountCall()
	if _, err := c.AddBuffer(nil); err == nil {
		t.Error("a buffer without a limit")
	}
	c.Close()
	c.Reset(context.Background(), "g", &Grants{}, Limits{}, nil, 2)
	defer c.Close()
	if len(c.Deliveries()) != 2 || c.Open() != -1 || c.Usage != (Usage{}) || c.Function != "g" || c.Delivery(11) != nil {
		t.Errorf("%d deliveries, open %d, usage %+v, function %s", len(c.Deliveries()), c.Open(), c.Usage, c.Function)
	}
	for i, d := range c.Deliveries() {
		if d.Message != nil || d.Outcome.Disposition != Unsettled {
			t.Errorf("delivery %d has %+v", i, d)
		}
	}
}

func TestCallBudgets(t *testing.T) {
	c := newTestCall(1)
	defer c.Close()
	for i, fine := range []bool{true, true, false} {
		if err := c.CountCall(); (err == nil) != fine || err != nil && !errors.Is(err, Limit) {
			t.Errorf("call %d: %v, want fine %v", i, err, fine)
		}
	}
	if err := errors.Join(c.Spend(time.Second)); err != nil {
		t.Error(err)
	}
	if err := c.Spend(time.Second + 1); !errors.Is(err, Limit) {
		t.Errorf("a second and more: %v", err)
	}
}

// A movable deadline moves, and its context ends when it is told.
func TestMovableClock(t *testing.T) {
	over := errors.New("over")
	c := newTestCall(1)
	defer c.Close()
	c.SetTimeout(time.Minute, over)
	c.StartMovableClock(time.Now())
	at := c.Deadline()
	c.Postpone(time.Minute)
	if got := c.Deadline().Sub(at); got != time.Minute {
		t.Errorf("it moved by %s", got)
	}
	if c.Ended(at.Add(time.Second)) != nil || c.Ended(at.Add(time.Minute)) != over {
		t.Error("the deadline is not where it was put")
	}
	ctx := c.Context()
	if ctx.Err() != nil {
		t.Error("it ended by itself")
	}
	c.Expire()
	if context.Cause(ctx) != over {
		t.Errorf("cause %v", context.Cause(ctx))
	}
}

// Operations have a limit, and are told of when they have finished.
func TestTickets(t *testing.T) {
	c := newTestCall(1)
	told := make(chan *Ticket, 3)
	c.OnFinish(func(t *Ticket) { told <- t })
	hold := make(chan struct{})
	first, err := c.start(func(context.Context) (any, error) { <-hold; return 1, nil })
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.start(func(context.Context) (any, error) { panic("stumbles") })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.answered(3); !errors.Is(err, Limit) {
		t.Errorf("a third: %v", err)
	}
	if got := <-told; got != second {
		t.Error("the one that waits was told of")
	}
	if _, err := second.Value(); !errors.Is(err, Failed) {
		t.Errorf("one that stumbled: %v", err)
	}
	close(hold)
	if got := <-told; got != first {
		t.Error("the first was not told of")
	}
	c.Collect(second)
	if third, err := c.answered(3); err != nil || <-told != third {
		t.Errorf("after one was collected: %v", err)
	}
	c.Close()
}

// meeting is an http capability whose answers wait until so many are under way.
type meeting struct{ all chan struct{} }

func (meeting) Keyed() bool { return false }
func (m meeting) Do(ctx context.Context, r *Request) (*HTTPResponse, error) {
	if r.URL == "panic" {
		panic("a fault of ours")
	}
	select {
	case m.all <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for len(m.all) < cap(m.all) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		runtime.Gosched()
	}
	return &HTTPResponse{Status: 200, Body: r.Body}, nil
}

// Several requests of one call are under way together, each with an outcome of its
// own; one too many and none is sent.
func TestSeveralRequests(t *testing.T) {
	grants := &Grants{HTTP: meeting{make(chan struct{}, 10)}}
	c := NewCall(t.Context(), "f", grants, Limits{HTTPRequests: 12, Buffers: 1 << 20, Tickets: 2}, nil, []*Message{{}})
	defer c.Close()
	c.SetTimeout(10*time.Second, errors.New("over"))
	c.StartClock(time.Now())
	start := func(n int, urls ...string) (*Ticket, error) {
		all := make([]*Request, n)
		for i := range all {
			all[i] = &Request{URL: "x"}
		}
		for i, u := range urls {
			all[i].URL = u
		}
		return c.HTTPStartAll(BatchID+1, all, make([]int32, n))
	}
	ticket, err := start(11, "panic")
	if err != nil {
		t.Fatal(err)
	}
	<-ticket.Done()
	value, err := ticket.Value()
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range value.([]HTTPResult) {
		if i == 0 && ErrnoOf(r.Err) != Failed || i > 0 && (r.Err != nil || r.Answer.Response.Status != 200) {
			t.Errorf("request %d: %+v", i, r)
		}
	}
	if _, err := start(2); ErrnoOf(err) != Limit {
		t.Errorf("two above the limit = %v", err)
	}
}
