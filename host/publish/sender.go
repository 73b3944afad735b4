package publish

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pelton-run/pelton/host"
)

const (
	// window is how many messages are under way before their acks are waited for.
	window = 256
	// AckTimeout is how long a stream may take to store a message.
	AckTimeout = 5 * time.Second
)

// Sender sends what lay in outboxes, for all functions of a host. It is safe for
// concurrent use.
type Sender struct {
	js       jetstream.JetStream
	noStream func(ctx context.Context, subject string) error
}

var _ host.Sender = (*Sender)(nil)

// NewSender makes a sender. noStream is told of a subject that no stream takes, and
// may make one; the message is sent again later. It may be nil.
func NewSender(js jetstream.JetStream, noStream func(ctx context.Context, subject string) error) *Sender {
	return &Sender{js: js, noStream: noStream}
}

// Send implements host.Sender. Messages are on their way in their order, several
// at a time; when one is not stored, later ones may be, and come again with the
// same message ids, which the stream drops as long as its duplicate window lasts.
func (s *Sender) Send(ctx context.Context, messages []*host.Outgoing) (stored int, err error) {
	for stored < len(messages) {
		group := messages[stored:min(stored+window, len(messages))]
		n, err := s.group(ctx, group)
		stored += n
		if err != nil {
			return stored, err
		}
	}
	return stored, nil
}

func (s *Sender) group(ctx context.Context, messages []*host.Outgoing) (stored int, err error) {
	acks := make([]jetstream.PubAckFuture, len(messages))
	for i, m := range messages {
		if acks[i], err = s.launch(m); err != nil {
			messages = messages[:i]
			break
		}
		host.CrashPoint("between sends", m.Subject)
	}
	timer := time.NewTimer(AckTimeout)
	defer timer.Stop()
	for i, m := range messages {
		if acks[i] == nil {
			continue
		}
		select {
		case <-acks[i].Ok():
		case err := <-acks[i].Err():
			if errors.Is(err, jetstream.ErrNoStreamResponse) && s.noStream != nil {
				err = errors.Join(err, s.noStream(ctx, m.Subject))
			}
			return i, host.Errorf(host.Unavailable, "publish to %s: %v", m.Subject, err)
		case <-timer.C:
			return i, host.Errorf(host.Unavailable, "publish to %s: no stream has stored it within %s", m.Subject, AckTimeout)
		case <-ctx.Done():
			return i, host.Errorf(host.Cancelled, "publish to %s: %v", m.Subject, context.Cause(ctx))
		}
	}
	return len(messages), err
}

// launch sends one message; nil when nobody acks it.
func (s *Sender) launch(m *host.Outgoing) (jetstream.PubAckFuture, error) {
	msg := &nats.Msg{Subject: m.Subject, Header: nats.Header(maps.Clone(m.Headers)), Data: m.Data}
	if m.Core {
		if err := s.js.Conn().PublishMsg(msg); err != nil {
			return nil, host.Errorf(host.Unavailable, "publish to %s: %v", m.Subject, err)
		}
		return nil, nil
	}
	ack, err := s.js.PublishMsgAsync(msg, jetstream.WithMsgID(m.MsgID))
	if err != nil {
		return nil, host.Errorf(host.Unavailable, "publish to %s: %v", m.Subject, err)
	}
	return ack, nil
}
