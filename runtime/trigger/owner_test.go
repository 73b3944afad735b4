package trigger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pelton-run/pelton/host"
)

func TestMayRun(t *testing.T) {
	have := claim{Durable: "d", Database: "aaaa", High: 10, Host: "h1"}
	for _, tt := range []struct {
		what     string
		have     claim
		database string
		high     uint64
		why      string // part of it; "" when it may
	}{
		{"nothing is claimed", claim{}, "aaaa", 0, ""},
		{"no database", have, "", 0, ""},
		{"the same database", have, "aaaa", 10, ""},
		{"the same, further on", have, "aaaa", 11, ""},
		{"another database", have, "bbbb", 99, "host h1"},
		{"an older copy", have, "aaaa", 9, "nats kv del PELTON_OWNERS f.d"},
	} {
		err := mayRun(tt.have, tt.database, tt.high, "f.d")
		if (err == nil) != (tt.why == "") || err != nil && (!strings.Contains(err.Error(), tt.why) || !errors.As(err, &standby{})) {
			t.Errorf("%s: %v, want %q", tt.what, err, tt.why)
		}
	}
}

// CON-2: what the server can change is changed in place; a start, which it cannot,
// is refused with all that one needs to know, and the position stays.
func TestDurableEdits(t *testing.T) {
	r := newRig(t)
	for i := range 5 {
		r.publish("a.x", fmt.Sprint(i))
	}
	info := func() *jetstream.ConsumerInfo {
		t.Helper()
		c, err := r.js.Consumer(t.Context(), "S", "f")
		if err != nil {
			t.Fatal(err)
		}
		return c.CachedInfo()
	}
	_, f, stop := r.run("name: f\ntriggers: [{stream: S}]\n", ack)
	until(t, "five are acked", 5*time.Second, func() bool { return f.Stats.Acked.Load() == 5 })
	stop()
	before := info()
	c, f, stop := r.run("name: f\ntriggers: [{stream: S, ack_wait: 45s, max_ack_pending: 77}]\n", ack)
	until(t, "ok", 5*time.Second, func() bool { return c.State().State == StateOK })
	stop()
	after := info()
	if k := after.Config; k.AckWait != 45*time.Second || k.MaxAckPending != 77 || !after.Created.Equal(before.Created) || after.Delivered.Stream != 5 || f.Stats.Delivered.Load() != 0 {
		t.Errorf("%+v, %d delivered again", after, f.Stats.Delivered.Load())
	}
	c, _, stop = r.run("name: f\ntriggers: [{stream: S}]\n", ack) // which names neither
	until(t, "ok", 5*time.Second, func() bool { return c.State().State == StateOK })
	stop()
	if k := info().Config; k.AckWait != 45*time.Second || k.MaxAckPending != 77 {
		t.Errorf("what the manifest does not name was changed: %+v", k)
	}
	c, _, _ = r.run("name: f\ntriggers: [{stream: S, deliver_policy: new}]\n", ack)
	until(t, "refused", 5*time.Second, func() bool { return c.State().State == StateFailed })
	for _, part := range []string{"function f", "durable f", "deliver_policy", `"all"`, `"new"`} {
		if !strings.Contains(c.State().Reason, part) {
			t.Errorf("reason %q does not name %s", c.State().Reason, part)
		}
	}
}

// A durable that vanished goes on where it was, not at the beginning.
func TestDurableVanished(t *testing.T) {
	r := newRig(t)
	for i := range 5 {
		r.publish("a.x", fmt.Sprint(i))
	}
	c, f, stop := r.run("name: f\ntriggers: [{stream: S}]\n", ack)
	until(t, "five are acked", 5*time.Second, func() bool { return f.Stats.Acked.Load() == 5 && r.outstanding("f") == 0 })
	stop()
	if err := r.js.DeleteConsumer(t.Context(), "S", "f"); err != nil {
		t.Fatal(err)
	}
	r.publish("a.x", "6")
	seen := make(chan string, 10)
	c, _, _ = r.run("name: f\ntriggers: [{stream: S}]\n", func(m *host.Message) host.Outcome {
		seen <- string(m.Data)
		return host.Outcome{Disposition: host.Ack}
	})
	if got := <-seen; got != "6" {
		t.Errorf("it went on with message %s, want 6", got)
	}
	until(t, "ok", 5*time.Second, func() bool { return c.State().State == StateOK && r.outstanding("f") == 0 })
}

// A durable that was made, and moved or not, by a host that died before it let it
// go is let go by the next one, at the place that was written down.
func TestDurableLeftPaused(t *testing.T) {
	r := newRig(t)
	for i := range 5 {
		r.publish("a.x", fmt.Sprint(i+1))
	}
	s, err := r.js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	for name, placed := range map[string]string{"moved": "4", "made": ""} {
		pause := time.Now().Add(placing)
		meta := map[string]string{metaFunction: name, metaStart: "new", metaBegin: "4", metaPlaced: placed}
		if placed == "" {
			delete(meta, metaPlaced)
		}
		_, err := s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: -1, PauseUntil: &pause, Metadata: meta})
		if err == nil && placed != "" {
			_, err = r.js.ResetConsumerToSequence(t.Context(), "S", name, 4)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, f, _ := r.run("name: "+name+"\ntriggers: [{stream: S, deliver_policy: new}]\n", ack)
		until(t, name+": messages 4 and 5", 10*time.Second, func() bool { return f.Stats.Acked.Load() == 2 && r.outstanding(name) == 0 })
	}
}

// A thousand messages that wait for their retry do not stop fresh ones.
func TestDelayedRetries(t *testing.T) {
	const waiting = 1000
	r := newRig(t)
	for i := range waiting {
		if _, err := r.js.PublishAsync("a.bad", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	<-r.js.PublishAsyncComplete()
	fresh := make(chan struct{}, 1)
	_, f, _ := r.run("name: f\ntriggers: [{stream: S, batch: {max: 100}}]\nretry: {max_deliver: 5, backoff: [1h], breaker: off}\n", func(m *host.Message) host.Outcome {
		if m.Subject == "a.bad" {
			return host.Outcome{Disposition: host.Nak}
		}
		fresh <- struct{}{}
		return host.Outcome{Disposition: host.Ack}
	})
	until(t, "all have failed", 20*time.Second, func() bool { return f.Stats.Naked.Load() == waiting })
	r.publish("a.good", "")
	select {
	case <-fresh:
	case <-time.After(5 * time.Second):
		t.Error("the fresh message does not come")
	}
}

// The right to run a function goes to another host soon after it is let go, and
// later after its holder cannot keep it; never do two have it.
func TestSole(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	type hostOf struct {
		*Sole
		end, cut func()
	}
	var group sync.WaitGroup
	defer group.Wait()
	start := func(name string) hostOf {
		nc, err := r.s.Connect()
		if err != nil {
			t.Fatal(err)
		}
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		s := NewOwners(js, name).NewSole("f")
		ctx, cancel := context.WithCancel(context.Background())
		group.Go(func() { s.Run(ctx); nc.Close() })
		t.Cleanup(cancel)
		return hostOf{s, cancel, nc.Close}
	}
	a := start("a")
	until(t, "a has it", 5*time.Second, a.Held)
	b := start("b")
	watch, watched := context.WithCancel(t.Context())
	group.Go(func() {
		for watch.Err() == nil {
			if a.Held() && b.Held() {
				t.Error("two hosts have it")
				return
			}
			time.Sleep(time.Millisecond) // to look again
		}
	})
	a.end()
	until(t, "b has it once a let it go", 4*time.Second, b.Held)
	if err := a.Fence(); host.ErrnoOf(err) != host.Cancelled {
		t.Errorf("the fence of one that has it not: %v", err)
	}
	watched()
	c := start("c")
	b.cut() // as if it were frozen, or cut off
	until(t, "c has it once b lost it", 15*time.Second, func() bool {
		if c.Held() && b.Held() {
			t.Fatal("two hosts have it")
		}
		return c.Held()
	})
	b.end()
	c.end()
}
