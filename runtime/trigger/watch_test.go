package trigger

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/pelton-run/pelton/manifests"
)

// What the server gives up on for a durable that is not Pelton's, and what that
// durable terminates, become dead letters; one that is gone leaves what is known.
func TestWatch(t *testing.T) {
	r := newRig(t)
	s := r.stream(jetstream.StreamConfig{Name: "W", Subjects: []string{"w.>"}, Retention: jetstream.WorkQueuePolicy})
	theirs, err := s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "theirs", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 2})
	if err != nil {
		t.Fatal(err)
	}
	w := &Watch{JS: r.js, Watched: []manifests.Watched{{Stream: "W", Durable: "theirs"}}, Log: zerolog.Nop(),
		Letters: &DeadLetters{JS: r.js, Config: manifests.DeadLetter{Subject: "dlq.{{subject}}"}, Host: "h1"}}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { w.Run(ctx) })
	defer group.Wait()
	defer cancel()
	until(t, "it watches", 5*time.Second, func() bool { _, err := r.js.Consumer(ctx, AdvisoryStream, AdvisoryDurable); return err == nil })
	r.publish("w.often", "body")
	r.publish("w.never", "body")
	for range 3 { // the last finds nothing, and has the server notice
		batch, err := theirs.Fetch(2, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for m := range batch.Messages() {
			if m.Subject() == "w.never" {
				err = m.TermWithReason("no good")
			} else {
				err = m.Nak()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	_, all := r.deadLetters(2)
	got := map[string]Letter{}
	for _, x := range all {
		got[x.Subject] = x
	}
	if x := got["w.often"]; x.Reason != "max_deliver" || x.Attempts != 2 || x.Size != 4 || x.Stream != "W" || x.Consumer != "theirs" {
		t.Errorf("given up on by the server: %+v", x)
	}
	// A work queue removes what is terminated, before anybody can copy it.
	if x := got["W.theirs"]; x.Reason != "term" || !strings.Contains(x.Error, "no good") || x.Size != 0 || x.StreamSeq != 2 {
		t.Errorf("terminated: %+v", x)
	}
}
