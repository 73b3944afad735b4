package trigger

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime"
)

// maxQueued bounds the requests that wait for a handler, as a multiple of the
// concurrency; what is above is refused at once.
const maxQueued = 4

// Endpoint answers the requests of one subject with a function. Its hosts form
// a queue group. Make it with NewEndpoint.
type Endpoint struct {
	trigger    manifests.Trigger
	dispatcher Dispatcher
	quiet      *Quiet
	slots      chan struct{} // one for each handler that runs
	places     chan struct{} // one for each request, running or waiting
	board      board

	mu     sync.Mutex
	hard   context.Context // of the handlers; nil once requests are refused
	active sync.WaitGroup
}

// NewEndpoint makes an endpoint, which answers from now on: whoever finds it does
// not have to wait for Run. hard ends its handlers.
func NewEndpoint(hard context.Context, t manifests.Trigger, concurrency int, d Dispatcher, quiet *Quiet) *Endpoint {
	e := &Endpoint{hard: hard, trigger: t, dispatcher: d, quiet: quiet, slots: make(chan struct{}, concurrency), places: make(chan struct{}, concurrency*maxQueued)}
	e.board.state = State{Name: t.Name, Kind: "request", Subject: t.Request, State: StateOK}
	return e
}

// Name is the trigger's name, which is the micro endpoint's too.
func (e *Endpoint) Name() string { return e.trigger.Name }

// Subject is where the endpoint listens.
func (e *Endpoint) Subject() string { return e.trigger.Request }

// State says how the endpoint is.
func (e *Endpoint) State() State { return e.board.get() }

// Run refuses requests once ctx has ended, and waits for the handlers that run.
func (e *Endpoint) Run(ctx context.Context) {
	<-ctx.Done()
	e.mu.Lock()
	e.hard = nil
	e.mu.Unlock()
	e.active.Wait()
	e.board.set(StateStopped, "")
}

// Handle is the micro handler. It returns at once.
func (e *Endpoint) Handle(req micro.Request) {
	e.mu.Lock()
	hard := e.hard
	if hard != nil {
		e.active.Add(1)
	}
	e.mu.Unlock()
	if hard == nil {
		req.Error("503", "the host is stopping", nil)
		return
	}
	select {
	case e.places <- struct{}{}:
	default:
		e.active.Done()
		req.Error("503", fmt.Sprintf("%d requests are waiting already", cap(e.places)), nil)
		return
	}
	go func() {
		defer e.active.Done()
		defer func() { <-e.places }()
		e.slots <- struct{}{}
		defer func() { <-e.slots }()
		e.quiet.enter(false)
		defer e.quiet.leave(false)
		e.dispatcher.Dispatch(hard, []runtime.Delivery{newRequest(e.trigger.Name, req)})
	}()
}

// request is a request as a delivery. It has one attempt: whoever asks decides
// about another.
type request struct {
	req     micro.Request
	message *host.Message
}

var _ runtime.Delivery = (*request)(nil)

func newRequest(trigger string, req micro.Request) *request {
	return &request{req: req, message: &host.Message{
		Trigger: trigger, Subject: req.Subject(), Reply: req.Reply(), Headers: req.Headers(), Data: req.Data(),
		NumDelivered: 1, Timestamp: time.Now(),
	}}
}

// Message implements runtime.Delivery.
func (r *request) Message() *host.Message { return r.message }

// Record implements runtime.Delivery: nothing is known of a request's past.
func (r *request) Record(context.Context) (runtime.Record, error) { return runtime.Record{}, nil }

// Ack implements runtime.Delivery: it sends the answer.
func (r *request) Ack(_ context.Context, response *host.Response) error {
	switch {
	case response == nil:
		return r.req.Respond(nil)
	case response.Code != "":
		return r.fail(response.Code, response.Text, response.Data)
	}
	return r.req.Respond(response.Data)
}

// Retry implements runtime.Delivery: the asker is told that it failed.
func (r *request) Retry(_ context.Context, v runtime.Verdict) error {
	return r.fail("500", v.Error, nil)
}

// fail answers with an error, in the headers of micro's. Not by its Error: that
// notes the error where micro reads it as soon as Handle has returned, which is
// before.
func (r *request) fail(code, text string, data []byte) error {
	return r.req.Respond(data, micro.WithHeaders(micro.Headers{
		micro.ErrorHeader:     {cmp.Or(text, "the function gave no reason")},
		micro.ErrorCodeHeader: {code},
	}))
}

// DeadLetter implements runtime.Delivery: requests have none.
func (r *request) DeadLetter(context.Context, runtime.Verdict) (*host.Outgoing, error) {
	return nil, nil
}

// GiveUp implements runtime.Delivery: the asker is told that it asked wrongly,
// or that it failed.
func (r *request) GiveUp(_ context.Context, v runtime.Verdict, _ *host.Outgoing) error {
	if v.Reason == runtime.ReasonTerm {
		return r.fail("400", v.Error, nil)
	}
	return r.fail("500", v.Error, nil)
}
