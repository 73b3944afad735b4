// Package publish is the publish capability: messages to the subjects that a
// manifest grants.
package publish

import (
	"context"
	"maps"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
)

// Limits of a published message that no manifest changes.
const (
	MaxHeaders     = 64
	MaxHeaderBytes = 16 << 10
)

// Publisher publishes for one function. It is safe for concurrent use.
type Publisher struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	grants  []manifests.PublishGrant
	targets targets
}

var _ host.Publisher = (*Publisher)(nil)

// New makes the publisher of a function.
func New(nc *nats.Conn, js jetstream.JetStream, grants []manifests.PublishGrant) *Publisher {
	return &Publisher{nc: nc, js: js, grants: grants, targets: targets{js: js}}
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
	if m.Core = p.grants[i].Core; m.Core {
		return nil
	}
	return p.targets.check(ctx, m)
}

func headerBytes(headers map[string][]string) int {
	size := 0
	for name, values := range headers {
		for _, v := range values {
			size += len(name) + len(v) + len(": \r\n")
		}
	}
	return size
}

func checkHeaders(headers map[string][]string) error {
	if len(headers) > MaxHeaders {
		return host.Errorf(host.TooLarge, "publish: %d headers are above the limit of %d", len(headers), MaxHeaders)
	}
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
		}
	}
	if size := headerBytes(headers); size > MaxHeaderBytes {
		return host.Errorf(host.TooLarge, "publish: headers of %d bytes are above the limit of %d", size, MaxHeaderBytes)
	}
	return nil
}

// Publish sends the message, and without core waits until a stream stored it.
func (p *Publisher) Publish(ctx context.Context, m *host.Outgoing) (host.PubAck, error) {
	msg := &nats.Msg{Subject: m.Subject, Header: nats.Header(maps.Clone(m.Headers)), Data: m.Data} // the client adds to them
	if m.Core {
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
