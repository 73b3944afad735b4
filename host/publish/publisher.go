// Package publish is the publish capability: messages to the subjects that a
// manifest grants.
package publish

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
)

// Limits of a published message that no manifest changes.
const (
	MaxHeaders     = 64
	MaxHeaderBytes = 16 << 10
	// knownFor is how long the answer to "does a stream take this subject" holds.
	knownFor = 30 * time.Second
	askFor   = 2 * time.Second // how long that question may take
)

// Publisher publishes for one function. It is safe for concurrent use.
type Publisher struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	grants []manifests.PublishGrant

	mu    sync.Mutex
	taken map[int]time.Time // by index of the grant: when a stream was last seen to take it
}

var _ host.Publisher = (*Publisher)(nil)

// New makes the publisher of a function.
func New(nc *nats.Conn, js jetstream.JetStream, grants []manifests.PublishGrant) *Publisher {
	return &Publisher{nc: nc, js: js, grants: grants, taken: map[int]time.Time{}}
}

func (p *Publisher) grant(subject string) int {
	for i, g := range p.grants {
		if manifests.SubjectMatches(g.Subject, subject) {
			return i
		}
	}
	return -1
}

// Check refuses a message that could never be published.
func (p *Publisher) Check(ctx context.Context, m *host.Outgoing) error {
	if msg := manifests.CheckSubject(m.Subject, true); msg != "" {
		return host.Errorf(host.Invalid, "publish: subject %q %s", m.Subject, msg)
	}
	i := p.grant(m.Subject)
	if i < 0 || manifests.ReservedSubject(m.Subject) {
		return host.Errorf(host.Denied, "publish: subject %q is not granted", m.Subject)
	}
	if err := checkHeaders(m.Headers); err != nil {
		return err
	}
	if max := p.nc.MaxPayload(); max > 0 && int64(len(m.Data)) > max-MaxHeaderBytes {
		return host.Errorf(host.TooLarge, "publish: %d bytes and headers are above the server's max_payload of %d", len(m.Data), max)
	}
	if p.grants[i].Core {
		return nil
	}
	return p.checkTaken(ctx, i, m.Subject)
}

func checkHeaders(headers map[string][]string) error {
	if len(headers) > MaxHeaders {
		return host.Errorf(host.TooLarge, "publish: %d headers are above the limit of %d", len(headers), MaxHeaders)
	}
	size := 0
	for name, values := range headers {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "nats-") || strings.HasPrefix(lower, "pelton-") {
			return host.Errorf(host.Denied, "publish: header %s is set by the host", name)
		}
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == ':' || r >= 0x7f }) {
			return host.Errorf(host.Invalid, "publish: header %q is not valid", name)
		}
		for _, v := range values {
			if strings.ContainsAny(v, "\r\n") {
				return host.Errorf(host.Invalid, "publish: header %s has a line break", name)
			}
			size += len(name) + len(v)
		}
	}
	if size > MaxHeaderBytes {
		return host.Errorf(host.TooLarge, "publish: headers of %d bytes are above the limit of %d", size, MaxHeaderBytes)
	}
	return nil
}

// checkTaken refuses a subject that no stream takes. A server that does not
// answer is not a refusal: the publish itself will tell.
func (p *Publisher) checkTaken(ctx context.Context, grant int, subject string) error {
	p.mu.Lock()
	fresh := time.Since(p.taken[grant]) < knownFor
	p.mu.Unlock()
	if fresh {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	_, err := p.js.StreamNameBySubject(ctx, subject)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return host.Errorf(host.NotFound, "publish: no stream takes subject %q; add it to streams.yaml, or grant it with core: true", subject)
	}
	if err == nil {
		p.mu.Lock()
		p.taken[grant] = time.Now()
		p.mu.Unlock()
	}
	return nil
}

// Publish sends the message, and without core waits until a stream stored it.
func (p *Publisher) Publish(ctx context.Context, m *host.Outgoing) (host.PubAck, error) {
	msg := &nats.Msg{Subject: m.Subject, Header: nats.Header(maps.Clone(m.Headers)), Data: m.Data} // the client adds to them
	if i := p.grant(m.Subject); i >= 0 && p.grants[i].Core {
		if err := p.nc.PublishMsg(msg); err != nil {
			return host.PubAck{}, host.Errorf(host.Unavailable, "publish to %s: %v", m.Subject, err)
		}
		return host.PubAck{}, nil
	}
	ack, err := p.js.PublishMsg(ctx, msg, jetstream.WithMsgID(m.MsgID))
	switch {
	case err == nil:
		return host.PubAck{Stream: ack.Stream, Sequence: ack.Sequence, Duplicate: ack.Duplicate}, nil
	case ctx.Err() != nil:
		return host.PubAck{}, host.Errorf(host.Cancelled, "publish to %s: %v", m.Subject, context.Cause(ctx))
	}
	return host.PubAck{}, host.Errorf(host.Unavailable, "publish to %s: %v", m.Subject, err)
}
