package trigger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime"
)

// The stream of dead letters that is created when no other takes them.
const (
	DeadLetterStream   = "DLQ"
	DeadLetterSubjects = "dlq.>"
	deadLetterMaxAge   = 30 * 24 * time.Hour
	deadLetterWindow   = 24 * time.Hour // for duplicates: a give-up is tried again until it is stored
	maxErrorHeader     = 2 << 10        // bytes of the error's text
)

// DeadLetters stores what a function gave up on. It is safe for concurrent use.
type DeadLetters struct {
	JS       jetstream.JetStream
	Config   manifests.DeadLetter
	Function string
	Host     string
	Region   string
}

// store keeps a full copy of the message with the reason. It returns once a
// stream has acknowledged it.
func (l *DeadLetters) store(ctx context.Context, m *host.Message, v runtime.Verdict) error {
	if !l.Config.On() {
		return nil
	}
	if strings.HasPrefix(m.Subject, "dlq.") {
		return fmt.Errorf("store dead letter: %s is a dead letter itself, and those do not loop", m.Subject)
	}
	msg := l.message(m, v)
	id := "dlq/" + l.Function + "/" + m.Identity()
	_, err := l.JS.PublishMsg(ctx, msg, jetstream.WithMsgID(id))
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		if err := l.createStream(ctx); err != nil {
			return err
		}
		_, err = l.JS.PublishMsg(ctx, msg, jetstream.WithMsgID(id))
	}
	if err != nil {
		return fmt.Errorf("store dead letter on %s: %w", msg.Subject, err)
	}
	return nil
}

// message copies the message, headers and all, and adds ours.
func (l *DeadLetters) message(m *host.Message, v runtime.Verdict) *nats.Msg {
	subject := manifests.Expand(l.Config.Subject, map[string]string{"subject": m.Subject, "function": l.Function})
	h := nats.Header(maps.Clone(m.Headers))
	if h == nil {
		h = nats.Header{}
	}
	for name := range h {
		if strings.HasPrefix(strings.ToLower(name), "nats-") { // they would act on the copy
			h["Pelton-Original-"+name] = h[name]
			delete(h, name)
		}
	}
	set := func(name, value string) { h["Pelton-"+name] = []string{value} }
	set("Function", l.Function)
	set("Host", l.Host)
	set("Region", l.Region)
	set("Stream", m.Stream)
	set("Sequence", strconv.FormatUint(m.StreamSeq, 10))
	set("Subject", m.Subject)
	set("Consumer", m.Consumer)
	set("Deliveries", strconv.FormatUint(m.NumDelivered, 10))
	set("Reason", v.Reason)
	set("Error", headerText(v.Error))
	set("Last-Failure", time.Now().UTC().Format(time.RFC3339Nano))
	return &nats.Msg{Subject: subject, Header: h, Data: m.Data}
}

// headerText makes one short line of an error.
func headerText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if len(s) > maxErrorHeader {
		s = strings.ToValidUTF8(s[:maxErrorHeader], "")
	}
	return s
}

func (l *DeadLetters) createStream(ctx context.Context) error {
	_, err := l.JS.CreateStream(ctx, jetstream.StreamConfig{
		Name: DeadLetterStream, Subjects: []string{DeadLetterSubjects},
		Description: "Messages that functions gave up on; pelton dlq reads them.",
		MaxAge:      deadLetterMaxAge, Duplicates: deadLetterWindow, AllowDirect: true,
	})
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return fmt.Errorf("create stream %s: %w", DeadLetterStream, err)
	}
	return nil
}
