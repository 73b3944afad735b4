package runtime

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
)

// Why a message gets no dead letter, and so is not given up on.
var (
	// ErrLoop says that it is a dead letter itself, and those do not loop.
	ErrLoop = errors.New("dead letters of dead letters are not stored")
	// ErrNotStored says that its stream did not take it.
	ErrNotStored = errors.New("the dead letter is not stored")
	// ErrAgain says that it has one already.
	ErrAgain = errors.New("it has a dead letter already")
)

// Invoker runs a function's handler for one invocation. It returns an error
// when the invocation was taken down before its handler returned; then nothing
// that its deliveries said counts. It is safe for concurrent use.
type Invoker interface {
	Invoke(c *host.Call) error
}

// Delivery is one attempt at one message, as a trigger holds it. It is settled
// by one call of Ack, Retry or GiveUp that succeeds.
type Delivery interface {
	Message() *host.Message
	// Record returns what is known of earlier failures.
	Record(ctx context.Context) (Record, error)
	// Ack ends it well. response is the answer to a request, nil otherwise.
	Ack(ctx context.Context, response *host.Response) error
	// Retry has the message come again after the verdict's delay, and keeps its
	// record when an attempt is charged.
	Retry(ctx context.Context, v Verdict) error
	// DeadLetter makes the message's dead letter, and stores what it refers to; nil
	// when the manifest wants none. ErrLoop and ErrAgain refuse.
	DeadLetter(ctx context.Context, v Verdict) (*host.Outgoing, error)
	// GiveUp stores the dead letter, unless it is nil, and then ends the message.
	GiveUp(ctx context.Context, v Verdict, letter *host.Outgoing) error
}

// Function is one function as it runs on this host. Its methods are safe for
// concurrent use; the fields are not changed after New.
type Function struct {
	Manifest *manifests.Manifest
	Digest   string // of the module
	Stats    *Stats

	invoker  Invoker
	grants   *host.Grants
	limits   host.Limits
	policy   Policy
	breaker  *breaker
	outbox   *outbox // nil without a database to write
	troubles troubles
	log      zerolog.Logger
	guest    host.Logger
	attempts sync.Pool // of *attempt, whose calls are closed
}

// New makes a function of its parts.
func New(m *manifests.Manifest, digest string, invoker Invoker, grants *host.Grants, log zerolog.Logger) *Function {
	log = log.With().Str("function", m.Name).Logger()
	stats := NewStats()
	f := &Function{
		Manifest: m, Digest: digest, Stats: stats,
		invoker: invoker, grants: grants, limits: limitsOf(m.Limits), policy: PolicyOf(m.Retry),
		log: log, guest: newGuestLog(log, m.Limits, stats),
		attempts: sync.Pool{New: func() any { return &attempt{call: &host.Call{}} }},
	}
	f.breaker = newBreaker(bool(m.Retry.Breaker), f.policy.last())
	if grants.Write != "" {
		f.outbox = newOutbox(m.Name, grants.Databases[grants.Write], grants.Sender)
	}
	return f
}

// Run looks after what an earlier run of the host has left, and what a later one
// must not find, until ctx ends.
func (f *Function) Run(ctx context.Context) {
	if f.outbox != nil {
		f.outbox.run(ctx)
	}
}

// Admission says how many messages a function takes.
type Admission struct {
	Limit   int    // at a time; 0 is no bound
	Release func() // to be called after the dispatch, unless it is nil
}

// admitEvery is how often a function that takes nothing looks whether it can again.
const admitEvery = 200 * time.Millisecond

// Admit waits until the function takes messages: not while it is paused, nor
// while its outbox is full, and one at a time while its breaker is open. The
// error is ctx's. Triggers call it before each dispatch.
func (f *Function) Admit(ctx context.Context) (Admission, error) {
	for f.troubles.halted.Load() || f.outbox != nil && f.outbox.full() {
		select {
		case <-ctx.Done():
			return Admission{}, ctx.Err()
		case <-time.After(admitEvery):
		}
	}
	release, err := f.breaker.enter(ctx)
	if release == nil || err != nil {
		return Admission{}, err
	}
	return Admission{Limit: 1, Release: release}, nil
}

// Position returns how far the function's inbox is with a durable, and the
// identity of the database that it is in; "" when it keeps none.
func (f *Function) Position(ctx context.Context, s host.Source) (p host.Position, database string, err error) {
	if f.outbox == nil {
		return p, "", nil
	}
	p, err = f.outbox.db.Position(ctx, s)
	return p, f.outbox.db.Identity(), err
}

// Raise says that the stream will not deliver a durable's messages up to a
// sequence again, for all are acked.
func (f *Function) Raise(s host.Source, sequence uint64) {
	if f.outbox != nil {
		f.outbox.db.Raise(s, sequence)
	}
}

func limitsOf(l manifests.Limits) host.Limits {
	return host.Limits{
		HTTPRequests: l.HTTPRequests, Buffers: int64(l.Buffers), Publishes: l.Publishes, PublishSize: int64(l.PublishSize), Requests: l.Requests, Hops: l.Hops,
		Rows: host.RowLimit{Rows: l.SQLRows, Bytes: int64(l.SQLBytes)}, Response: int64(l.Response),
		Blob: int64(l.Blob), Tickets: l.Tickets,
		CPU: l.CPU.Std(), HostCalls: uint64(l.HostCalls), SQLCalls: l.SQLCalls,
	}
}
