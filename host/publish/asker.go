package publish

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
)

// Asker asks the services that one function is granted: micro services, and whatever
// else answers on a subject. It is safe for concurrent use.
type Asker struct {
	nc       *nats.Conn
	subjects []string
}

var _ host.Asker = (*Asker)(nil)

// NewAsker makes the asker of a function. subjects are patterns.
func NewAsker(nc *nats.Conn, subjects []string) *Asker { return &Asker{nc: nc, subjects: subjects} }

// Check implements host.Asker.
func (a *Asker) Check(q *host.Question) error {
	if msg := manifests.CheckSubject(q.Subject, true); msg != "" {
		return host.Errorf(host.Invalid, "request: subject %q %s", q.Subject, msg)
	}
	granted := slices.ContainsFunc(a.subjects, func(pattern string) bool { return manifests.SubjectMatches(pattern, q.Subject) })
	if !granted || manifests.ReservedSubject(q.Subject) {
		return host.Errorf(host.Denied, "request: subject %q is not granted", q.Subject)
	}
	if err := checkHeaders(q.Headers); err != nil {
		return err
	}
	if max := a.nc.MaxPayload(); max > 0 && int64(len(q.Data)) > max-MaxHeaderBytes {
		return host.Errorf(host.TooLarge, "request: %d bytes and headers are above the server's max_payload of %d", len(q.Data), max)
	}
	return nil
}

// Ask implements host.Asker.
func (a *Asker) Ask(ctx context.Context, q *host.Question) (*host.ServiceAnswer, error) {
	msg := &nats.Msg{Subject: q.Subject, Header: nats.Header(maps.Clone(q.Headers)), Data: q.Data} // the client adds to them
	reply, err := a.nc.RequestMsgWithContext(ctx, msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, host.Errorf(host.Unavailable, "request %s: nobody answers there", q.Subject)
	case err != nil && ctx.Err() != nil:
		return nil, host.Errorf(host.Cancelled, "request %s: %v", q.Subject, context.Cause(ctx))
	case err != nil:
		return nil, host.Errorf(host.Unavailable, "request %s: %v", q.Subject, err)
	}
	answer := &host.ServiceAnswer{Data: reply.Data}
	for name, values := range reply.Header {
		for _, v := range values {
			answer.Headers = append(answer.Headers, [2]string{name, v})
		}
	}
	return answer, nil
}
