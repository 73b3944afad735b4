package trigger

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime"
)

// A lease that was not extended for ack_wait is lost, and nothing is said of its
// delivery any more; one that was is held, however long.
func TestLeaseLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ackWait = 3 * time.Second
		s := newLeaseSet(ackWait)
		held, frozen := &delivery{}, &delivery{}
		s.hold(held)
		s.hold(frozen)
		for range 10 {
			time.Sleep(ackWait / 3)
			s.mu.Lock()
			held.extended = time.Now() // as extend does for what can be told of
			s.mu.Unlock()
		}
		if s.lost(held) || !s.lost(frozen) {
			t.Errorf("lost: %v and %v, want only the one that was not extended", s.lost(held), s.lost(frozen))
		}
		if !s.release(held) || s.release(frozen) || s.release(held) {
			t.Error("released as held: the first once, the other never")
		}
		if n, released := s.counts(); n != 0 || released != 2 {
			t.Errorf("%d held and %d released, want none and 2", n, released)
		}
	})
}

// The puller is told that there is room when few enough are held, and not before.
func TestLeaseRoom(t *testing.T) {
	s := newLeaseSet(3 * time.Second)
	var list [4]delivery
	for i := range list {
		s.hold(&list[i])
	}
	told := func() bool {
		select {
		case <-s.room:
			return true
		default:
			return false
		}
	}
	s.tellAt(2)
	for i, want := range []bool{false, true, true} {
		if s.release(&list[i]); told() != want {
			t.Errorf("with %d held: told %v, want %v", 3-i, !want, want)
		}
	}
	if s.tellAt(1); !told() {
		t.Error("not told at once, with one held where one is few enough")
	}
	if s.tellAt(-1); told() {
		t.Error("told, though no number is few enough")
	}
}

// A connection that is away extends nothing.
func TestLeaseWithoutConnection(t *testing.T) {
	r := newRig(t)
	nc, err := r.s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s := newLeaseSet(3 * time.Second)
	d := &delivery{consumer: &Consumer{config: ConsumerConfig{JS: js}}, msg: &nats.Msg{Reply: "ack"}}
	s.hold(d)
	begun := d.extended
	s.extend(begun.Add(time.Second))
	if d.extended != begun.Add(time.Second) {
		t.Error("a lease was not extended at a third of ack_wait")
	}
	nc.Close()
	s.extend(begun.Add(2 * time.Second))
	if d.extended != begun.Add(time.Second) {
		t.Error("a lease was extended without a connection")
	}
}

// A message that has come before is in smaller company, and one that ran when the
// host died, again and again, is alone.
func TestCompany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 16
		queue := make(chan *delivery, 100)
		c := NewConsumer(ConsumerConfig{Trigger: manifests.Trigger{Batch: manifests.Batching{Max: most, Wait: manifests.Duration(time.Second)}}, Attempts: NewAttempts(nil)})
		w := &crew{consumer: c, queue: queue}
		add := func(delivered uint64, r *runtime.Record) {
			d := &delivery{consumer: c, record: r}
			if r == nil {
				d.record = &runtime.Record{}
			}
			d.message.NumDelivered = delivered
			queue <- d
		}
		for range 20 {
			add(1, nil)
		}
		add(2, nil)                          // with half as many
		add(1, nil)                          // which takes this one too
		add(1, &runtime.Record{Starts: 2})   // alone
		add(1, &runtime.Record{Starts: 1})   // with half as many, but not with the next
		add(9, nil)                          // alone
		add(1, &runtime.Record{Attempts: 4}) // failures are its own
		want := []int{16, 6, 1, 1, 1, 1}
		for i, n := range want {
			begin := time.Now()
			batch := w.fill(t.Context(), nil, w.first(t.Context()), 0)
			if len(batch) != n {
				t.Fatalf("batch %d has %d, want %d", i, len(batch), n)
			}
			if time.Since(begin) > time.Second {
				t.Errorf("batch %d waited %s", i, time.Since(begin))
			}
		}
		for range 3 {
			add(1, nil)
		}
		if batch := w.fill(t.Context(), nil, w.first(t.Context()), 1); len(batch) != 1 {
			t.Errorf("%d while one at a time is admitted", len(batch))
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		close(queue)
		if d := w.first(ended); d != nil { // what is left is given back
			t.Error("a message after the end")
		}
	})
}
