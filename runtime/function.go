package runtime

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
)

// Invoker runs a function's handler for one invocation. It returns an error
// when the invocation was taken down before its handler returned; then nothing
// that its deliveries said counts. It is safe for concurrent use.
type Invoker interface {
	Invoke(c *host.Call) error
}

// Delivery is one attempt at one message, as a trigger holds it. It is settled
// by exactly one call of Ack, Retry and GiveUp.
type Delivery interface {
	Message() *host.Message
	// Attempt counts from 1.
	Attempt() int
	// Ack ends it well. response is the answer to a request, nil otherwise.
	Ack(ctx context.Context, response *host.Response) error
	// Retry has the message come again after a delay.
	Retry(ctx context.Context, delay time.Duration, err string) error
	// GiveUp stores the message as a dead letter and then ends it.
	GiveUp(ctx context.Context, v Verdict) error
}

// Function is one function as it runs on this host. Dispatch is safe for
// concurrent use; the fields are not changed after New.
type Function struct {
	Manifest *manifests.Manifest
	Digest   string // of the module
	Stats    *Stats

	invoker Invoker
	grants  *host.Grants
	limits  host.Limits
	policy  Policy
	log     zerolog.Logger
	guest   host.Logger
	calls   sync.Pool // of *host.Call, that are closed
}

// New makes a function of its parts.
func New(m *manifests.Manifest, digest string, invoker Invoker, grants *host.Grants, log zerolog.Logger) *Function {
	log = log.With().Str("function", m.Name).Logger()
	stats := NewStats()
	return &Function{
		Manifest: m, Digest: digest, Stats: stats,
		invoker: invoker, grants: grants, limits: limitsOf(m.Limits), policy: PolicyOf(m.Retry),
		log: log, guest: newGuestLog(log, m.Limits, stats),
		calls: sync.Pool{New: func() any { return &host.Call{} }},
	}
}

func limitsOf(l manifests.Limits) host.Limits {
	return host.Limits{
		HTTPRequests: l.HTTPRequests, Buffers: int64(l.Buffers), Publishes: l.Publishes, PublishSize: int64(l.PublishSize),
		Rows: host.RowLimit{Rows: l.SQLRows, Bytes: int64(l.SQLBytes)}, Response: int64(l.Response),
		Blob: int64(l.Blob), Tickets: l.Tickets,
		CPU: l.CPU.Std(), HostCalls: uint64(l.HostCalls), SQLCalls: l.SQLCalls,
	}
}
