package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime"
)

// The stream that keeps what the server says of watched durables, and the durable
// that all hosts read it by.
const (
	AdvisoryStream  = "PELTON_ADVISORIES"
	AdvisoryDurable = "pelton"
	advisoryPrefix  = "$JS.EVENT.ADVISORY.CONSUMER."
	advisoryAgain   = 5 * time.Second // until one that failed is tried again
)

// advisory is what the server says of a message that a durable will not deliver
// again: io.nats.jetstream.advisory.v1.max_deliver and .terminated.
type advisory struct {
	Type       string    `json:"type"`
	Time       time.Time `json:"timestamp"`
	Stream     string    `json:"stream"`
	Consumer   string    `json:"consumer"`
	Sequence   uint64    `json:"stream_seq"`
	Deliveries uint64    `json:"deliveries"`
	Reason     string    `json:"reason"`
}

// Watch keeps dead letters of durables that are not Pelton's: of what the server
// gave up on after their max_deliver, and of what they terminated. The server says
// so once, without the message; a stream keeps that, and the message is copied
// while it is there.
type Watch struct {
	JS      jetstream.JetStream
	Watched []manifests.Watched
	Letters *DeadLetters // with no function
	Log     zerolog.Logger
}

// Run watches until ctx ends, and begins anew when something breaks.
func (w *Watch) Run(ctx context.Context) {
	said := ""
	for len(w.Watched) > 0 && ctx.Err() == nil {
		err := w.session(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			w.Log.Warn().Err(err).Msg("watched durables are not watched; trying again")
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryEvery):
		}
	}
}

func (w *Watch) session(ctx context.Context) error {
	consumer, err := w.open(ctx)
	if err != nil {
		return err
	}
	it, err := consumer.Messages(jetstream.PullMaxMessages(16))
	if err != nil {
		return fmt.Errorf("read stream %s: %w", AdvisoryStream, err)
	}
	defer it.Stop()
	for {
		msg, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("read stream %s: %w", AdvisoryStream, err)
		}
		if err = w.keep(ctx, msg.Data()); err != nil {
			w.Log.Warn().Err(err).Msg("a dead letter of a watched durable could not be stored; it is tried again")
			err = msg.NakWithDelay(advisoryAgain)
		} else {
			err = msg.Ack()
		}
		if err != nil {
			return fmt.Errorf("settle an advisory: %w", err)
		}
	}
}

// open makes the stream of advisories, adds what it does not take yet, and returns
// its durable.
func (w *Watch) open(ctx context.Context) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*apiTimeout)
	defer cancel()
	config := jetstream.StreamConfig{Name: AdvisoryStream, Description: "What the server says of durables that Pelton watches.", MaxAge: deadLetterMaxAge}
	s, err := w.JS.Stream(ctx, AdvisoryStream)
	if err == nil {
		config = s.CachedInfo().Config // other hosts may watch others
	} else if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("look up stream %s: %w", AdvisoryStream, err)
	}
	for _, d := range w.Watched {
		for _, kind := range []string{"MAX_DELIVERIES.", "MSG_TERMINATED."} {
			if subject := advisoryPrefix + kind + d.Stream + "." + d.Durable; !slices.Contains(config.Subjects, subject) {
				config.Subjects = append(config.Subjects, subject)
			}
		}
	}
	if s, err = w.JS.CreateOrUpdateStream(ctx, config); err != nil {
		return nil, fmt.Errorf("make stream %s: %w", AdvisoryStream, err)
	}
	c, err := s.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{Durable: AdvisoryDurable, AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: -1})
	if err != nil {
		return nil, fmt.Errorf("make durable %s of stream %s: %w", AdvisoryDurable, AdvisoryStream, err)
	}
	return c, nil
}

// keep stores the dead letter that an advisory is about.
func (w *Watch) keep(ctx context.Context, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 3*apiTimeout)
	defer cancel()
	var a advisory
	if err := json.Unmarshal(data, &a); err != nil || a.Stream == "" {
		w.Log.Warn().Err(err).Msg("an advisory of the server cannot be read; it is passed over")
		return nil
	}
	m, gone, err := w.message(ctx, a)
	if err != nil {
		return err
	}
	v := runtime.Verdict{Action: runtime.GiveUp, Reason: runtime.ReasonMaxDeliver, Error: a.Reason,
		Record: runtime.Record{Attempts: int(a.Deliveries), First: a.Time, Last: a.Time}}
	if a.Type == "io.nats.jetstream.advisory.v1.terminated" {
		v.Reason = runtime.ReasonTerm
	}
	if gone {
		v.Error = "the message is not in the stream any more; " + v.Error
	}
	letter, err := w.Letters.make(ctx, m, v, 0)
	if errors.Is(err, runtime.ErrLoop) {
		w.Log.Warn().Err(err).Msg("a watched durable gave up on a dead letter; it is passed over")
		return nil
	}
	if err != nil {
		return err
	}
	return w.Letters.store(ctx, letter)
}

// message reads the message of an advisory. One that is gone has no body, and the
// stream's and the durable's name for a subject.
func (w *Watch) message(ctx context.Context, a advisory) (m *host.Message, gone bool, err error) {
	m = &host.Message{Subject: a.Stream + "." + a.Consumer, Stream: a.Stream, Consumer: a.Consumer, StreamSeq: a.Sequence, NumDelivered: a.Deliveries, Timestamp: a.Time}
	s, err := w.JS.Stream(ctx, a.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return m, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("look up stream %s: %w", a.Stream, err)
	}
	m.StreamCreated = s.CachedInfo().Created
	raw, err := s.GetMsg(ctx, a.Sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return m, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read message %d of stream %s: %w", a.Sequence, a.Stream, err)
	}
	m.Subject, m.Headers, m.Data, m.Timestamp = raw.Subject, raw.Header, raw.Data, raw.Time
	return m, false, nil
}
