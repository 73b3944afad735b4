package trigger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/runtime"
)

// deadLetters opens the letters once there are n of them, and lists them.
func (r *rig) deadLetters(n int) (*Letters, []Letter) {
	r.t.Helper()
	r.letters(n)
	l, err := OpenLetters(r.t.Context(), r.js, "")
	if err != nil {
		r.t.Fatal(err)
	}
	var all []Letter
	if err := l.List(r.t.Context(), LetterFilter{}, func(x Letter) bool { all = append(all, x); return true }); err != nil {
		r.t.Fatal(err)
	}
	return l, all
}

// DLQ-2: what a stream took can be given up on, whatever its size, and comes back
// byte by byte, on its subject with its headers.
func TestLargeDeadLetters(t *testing.T) {
	r := newRig(t)
	r.stream(jetstream.StreamConfig{Name: DeadLetterStream, Subjects: []string{DeadLetterSubjects}, MaxMsgSize: 8 << 10})
	small := bytes.Repeat([]byte("x"), 8<<10) // larger than the stream of dead letters takes
	r.publish("a.small", string(small))
	full := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // the default max_payload
	beside := &nats.Msg{Subject: "a.beside", Data: full[:1_048_000], Header: nats.Header{"X": {strings.Repeat("h", 480)}}}
	for _, m := range []*nats.Msg{{Subject: "a.full", Data: full}, beside} {
		if _, err := r.js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	var again atomic.Bool
	seen := make(chan *host.Message, 10)
	r.run("name: f\ntriggers: [{stream: S}]\nretry: {max_deliver: 2, backoff: [10ms]}\n", func(m *host.Message) host.Outcome {
		if again.Load() {
			seen <- m
			return host.Outcome{Disposition: host.Ack}
		}
		return host.Outcome{Disposition: host.Nak, Reason: strings.Repeat("long ", 20_000)}
	})
	l, all := r.deadLetters(3)
	again.Store(true)
	for _, x := range all {
		if x.Attempts != 2 || x.Body == "" || x.Reason != runtime.ReasonMaxDeliver {
			t.Errorf("letter %+v, want two attempts and a body in the bucket", x)
		}
		if err := l.Redrive(t.Context(), x.Sequence, false); err != nil {
			t.Fatal(err)
		}
		want, m := full, <-seen
		if m.Subject == "a.small" {
			want = small
		}
		if m.Subject == "a.beside" {
			want = beside.Data
			if got := strings.Join(m.Headers["X"], ""); got != beside.Header.Get("X") {
				t.Errorf("header X has %d bytes, want %d", len(got), 480)
			}
		}
		if !bytes.Equal(m.Data, want) || m.Subject != x.Subject {
			t.Errorf("%s came back with %d bytes, want %d on %s", m.Subject, len(m.Data), len(want), x.Subject)
		}
	}
	if err := l.Redrive(t.Context(), all[0].Sequence, false); err == nil {
		t.Error("a letter was redriven twice")
	}
}

// DLQ-5: while no stream stores dead letters nothing is lost and nothing acked; it
// is tried slowly, said, and stored once when it can be. One that is removed is
// made anew.
func TestDeadLetterStreamFull(t *testing.T) {
	r := newRig(t)
	full := r.stream(jetstream.StreamConfig{Name: "G", Subjects: []string{"dlq.>"}, MaxMsgs: 1, Discard: jetstream.DiscardNew})
	r.publish("dlq.other", "x")
	r.publish("a.x", "body")
	var calls atomic.Int64
	_, f, _ := r.run("name: f\ntriggers: [{stream: S}]\nretry: {max_deliver: 1, backoff: [10ms]}\n", func(*host.Message) host.Outcome {
		calls.Add(1)
		return host.Outcome{Disposition: host.Nak, Reason: "down"}
	})
	begin := time.Now()
	until(t, "it is tried again", 10*time.Second, func() bool { return calls.Load() == 3 })
	if took := time.Since(begin); took < 2*time.Second {
		t.Errorf("three tries in %s", took)
	}
	all := f.Troubles()
	if len(all) != 1 || all[0].State != runtime.Failing || !strings.Contains(all[0].Reason, "dlq.a.x") {
		t.Errorf("troubles %+v, want failing with the subject", all)
	}
	if n := r.outstanding("f"); n != 1 {
		t.Errorf("%d outstanding, want the one", n)
	}
	if err := full.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "it is stored", 15*time.Second, func() bool { return r.outstanding("f") == 0 })
	s, err := r.js.Stream(t.Context(), "G")
	if err != nil || s.CachedInfo().State.Msgs != 1 || len(f.Troubles()) != 0 {
		t.Errorf("%d letters, troubles %+v, %v; want one and none", s.CachedInfo().State.Msgs, f.Troubles(), err)
	}
	if err := r.js.DeleteStream(t.Context(), "G"); err != nil {
		t.Fatal(err)
	}
	r.publish("a.y", "body")
	r.letters(1)
}

// A dead letter that fails is no dead letter again: the function pauses and says
// so, and the message stays.
func TestDeadLettersDoNotLoop(t *testing.T) {
	r := newRig(t)
	r.stream(jetstream.StreamConfig{Name: DeadLetterStream, Subjects: []string{DeadLetterSubjects}})
	r.publish("dlq.a.x", "body")
	_, f, _ := r.run("name: f\ntriggers: [{stream: DLQ}]\nretry: {max_deliver: 2, backoff: [10ms]}\n", func(*host.Message) host.Outcome {
		return host.Outcome{Disposition: host.Nak, Reason: "down"}
	})
	until(t, "the function is paused", 10*time.Second, func() bool { all := f.Troubles(); return len(all) == 1 && all[0].State == runtime.Paused })
	if s, err := r.js.Stream(t.Context(), DeadLetterStream); err != nil || s.CachedInfo().State.Msgs != 1 {
		t.Errorf("%d messages in the stream, %v; want the one", s.CachedInfo().State.Msgs, err)
	}
}

// A letter goes to the function that gave up on it, and is gone when that handled
// it; while it fails it stays. Two who redrive it do it once.
func TestRedriveDirect(t *testing.T) {
	r := newRig(t)
	if _, err := r.js.PublishMsg(t.Context(), &nats.Msg{Subject: "a.x", Header: nats.Header{"Pelton-Hops": {"5"}}, Data: []byte("body")}); err != nil {
		t.Fatal(err)
	}
	var well atomic.Bool
	_, f, _ := r.run("name: f\ntriggers: [{stream: S, name: events}]\nretry: {max_deliver: 1}\n", func(m *host.Message) host.Outcome {
		if !well.Load() {
			return host.Outcome{Disposition: host.Term, Reason: "down"}
		}
		if m.Trigger != "events" || m.Subject != "a.x" || string(m.Data) != "body" || m.Epoch == "" || m.Headers["Pelton-Reason"] != nil || m.Headers["Pelton-Hops"][0] != "5" {
			t.Errorf("the handler saw %+v", m)
		}
		return host.Outcome{Disposition: host.Ack}
	})
	l, all := r.deadLetters(1)
	err := l.RedriveTo(t.Context(), all[0].Sequence, false, f.Manifest, f, &Quiet{})
	if err == nil || !strings.Contains(err.Error(), "failed again: down") {
		t.Errorf("redriven while it is down: %v", err)
	}
	bucket, err := r.js.KeyValue(t.Context(), AttemptsBucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bucket.Create(t.Context(), l.redriveKey(all[0].Sequence), nil); err != nil { // somebody else
		t.Fatal(err)
	}
	well.Store(true)
	if err := l.RedriveTo(t.Context(), all[0].Sequence, false, f.Manifest, f, &Quiet{}); !errors.Is(err, ErrRedriven) {
		t.Errorf("redriven beside another: %v, want %v", err, ErrRedriven)
	}
	if err := l.RedriveTo(t.Context(), all[0].Sequence, true, f.Manifest, f, &Quiet{}); err != nil {
		t.Error(err)
	}
	n := 0
	if err := l.List(context.Background(), LetterFilter{}, func(Letter) bool { n++; return true }); err != nil || n != 0 {
		t.Errorf("%d letters are left, %v", n, err)
	}
	if len(f.Troubles()) != 0 {
		t.Errorf("troubles %+v", f.Troubles())
	}
}

func TestLetterFilter(t *testing.T) {
	now := time.Now()
	x := Letter{Function: "f", Reason: "term", Subject: "a.b", Time: now}
	for i, tt := range []struct {
		f    LetterFilter
		want bool
	}{
		{LetterFilter{}, true}, {LetterFilter{Function: "f", Reason: "term", Subject: "a.*", Since: now, Until: now.Add(1)}, true},
		{LetterFilter{Function: "g"}, false}, {LetterFilter{Reason: "crash"}, false}, {LetterFilter{Subject: "b.>"}, false},
		{LetterFilter{Since: now.Add(1)}, false}, {LetterFilter{Until: now}, false},
	} {
		if got := tt.f.matches(x); got != tt.want {
			t.Errorf("filter %d: %v, want %v", i, got, tt.want)
		}
	}
	if _, err := OpenLetters(t.Context(), newRig(t).js, ""); !errors.Is(err, ErrNoLetters) {
		t.Errorf("without a stream: %v", fmt.Sprint(err))
	}
}
