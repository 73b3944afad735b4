package publish

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime/broker"
)

func newPublisher(t *testing.T) (*Publisher, jetstream.JetStream) {
	t.Helper()
	s, err := broker.Start("127.0.0.1:0", t.TempDir(), broker.DefaultSync, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close(); s.Close() })
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OUT", Subjects: []string{"out.>"}}); err != nil {
		t.Fatal(err)
	}
	return New(nc, js, []manifests.PublishGrant{{Subject: "out.>"}, {Subject: "video.enriched.*"}, {Subject: "live.>", Core: true}}), js
}

// The same holds of requests, which need no stream.
func TestAskerCheck(t *testing.T) {
	p, _ := newPublisher(t)
	a := NewAsker(p.nc, []string{"svc.>", "prices.*"})
	for subject, want := range map[string]host.Errno{
		"svc.x": 0, "svc.x.y": 0, "prices.eu": 0,
		"svc": host.Denied, "prices.eu.x": host.Denied, "other": host.Denied, "$JS.API.STREAM.DELETE.S": host.Denied, "$SRV.INFO": host.Denied, "_INBOX.x": host.Denied, "pelton.ctl.admin.h.stop": host.Denied,
		"svc.*": host.Invalid, "svc.>": host.Invalid, "svc..x": host.Invalid, "": host.Invalid, "svc x": host.Invalid, "svc.\r\nPUB x": host.Invalid,
	} {
		if err := a.Check(&host.Question{Subject: subject}); err == nil != (want == 0) || err != nil && host.ErrnoOf(err) != want {
			t.Errorf("%q: %v, want %v", subject, err, want)
		}
	}
	for _, bad := range []*host.Question{
		{Subject: "svc.x", Headers: map[string][]string{"Nats-Msg-Id": {"x"}}},
		{Subject: "svc.x", Headers: map[string][]string{"Pelton-Hops": {"0"}}},
		{Subject: "svc.x", Headers: map[string][]string{"X": {"a\r\nb"}}},
		{Subject: "svc.x", Data: make([]byte, 1<<20)},
	} {
		if err := a.Check(bad); err == nil {
			t.Errorf("%v with %d bytes passes", bad.Headers, len(bad.Data))
		}
	}
}

// CON-6: an odd subject is refused, whatever the server would take.
func TestCheck(t *testing.T) {
	p, _ := newPublisher(t)
	subjects := map[string]host.Errno{
		"out.x": 0, "out.x.y": 0, "live.x": 0,
		"out.*": host.Invalid, "out.>": host.Invalid, "out..x": host.Invalid, ".out": host.Invalid, "out.": host.Invalid, "out x": host.Invalid, "": host.Invalid, "out.\x00": host.Invalid, "out.\r\nPUB x": host.Invalid,
		"other": host.Denied, "out": host.Denied, "OUT.x": host.Denied, "$JS.API.STREAM.DELETE.OUT": host.Denied, "_INBOX.x": host.Denied, "pelton.ctl.admin.h.stop": host.Denied,
		"video.enriched.x": host.NotFound, "video.enriched.x.y": host.Denied,
	}
	for subject, want := range subjects {
		if err := p.Check(t.Context(), &host.Outgoing{Subject: subject}); err == nil != (want == 0) || err != nil && host.ErrnoOf(err) != want {
			t.Errorf("%q: %v, want %v", subject, err, want)
		}
	}
	headers := map[string]host.Errno{
		"X-Trace": 0, "traceparent": 0,
		"Nats-Msg-Id": host.Denied, "nats-rollup": host.Denied, "NATS-Schedule-Target": host.Denied, "Pelton-Reason": host.Denied, "pelton-x": host.Denied,
		"": host.Invalid, "a b": host.Invalid, "a:b": host.Invalid, "a\r\nb": host.Invalid,
	}
	for name, want := range headers {
		if err := p.Check(t.Context(), &host.Outgoing{Subject: "out.x", Headers: map[string][]string{name: {"v"}}}); err == nil != (want == 0) || err != nil && host.ErrnoOf(err) != want {
			t.Errorf("header %q: %v, want %v", name, err, want)
		}
	}
	if err := p.Check(t.Context(), &host.Outgoing{Subject: "out.x", Headers: map[string][]string{"X": {"a\r\nNats-Rollup: all"}}}); host.ErrnoOf(err) != host.Invalid {
		t.Errorf("a value with a line break: %v, want invalid", err)
	}
	if err := p.Check(t.Context(), &host.Outgoing{Subject: "out.x", Headers: map[string][]string{"X": {strings.Repeat("x", MaxHeaderBytes)}}}); host.ErrnoOf(err) != host.TooLarge {
		t.Errorf("huge headers: %v, want too large", err)
	}
	if err := p.Check(t.Context(), &host.Outgoing{Subject: "out.x", Data: make([]byte, 1<<20)}); host.ErrnoOf(err) != host.TooLarge {
		t.Errorf("a body above max_payload: %v, want too large", err)
	}
}

func TestPublish(t *testing.T) {
	p, js := newPublisher(t)
	m := &host.Outgoing{Subject: "out.x", Headers: map[string][]string{"X": {"a", "b"}}, Data: []byte("body"), MsgID: "id"}
	for round, duplicate := range []bool{false, true} {
		ack, err := p.Publish(t.Context(), m)
		if err != nil || ack.Stream != "OUT" || ack.Sequence != 1 || ack.Duplicate != duplicate {
			t.Errorf("round %d: %+v, %v", round, ack, err)
		}
	}
	s, err := js.Stream(t.Context(), "OUT")
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.GetMsg(t.Context(), 1)
	if err != nil || string(got.Data) != "body" || strings.Join(got.Header["X"], "") != "ab" || got.Header.Get("Nats-Msg-Id") != "id" {
		t.Errorf("stored %+v, %v", got, err)
	}
	if len(m.Headers) != 1 {
		t.Errorf("the guest's headers were changed: %v", m.Headers)
	}
	if _, err := p.Publish(t.Context(), &host.Outgoing{Subject: "live.x", Core: true}); err != nil {
		t.Errorf("core publish: %v", err)
	}
}
