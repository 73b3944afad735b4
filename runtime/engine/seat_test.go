package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/pelton-run/pelton/host"
)

// What a guest that never asks is not told does not pile up, and it is not called
// again for it.
func TestForget(t *testing.T) {
	in := &instance{tickets: map[int32]*host.Ticket{}, seats: map[uint32]*seat{}, wake: make(chan struct{}, 1)}
	for range 100 { // collected by op_wait, say
		t := &host.Ticket{}
		in.number(t)
		in.finished(t)
		delete(in.tickets, t.Number)
	}
	open := &host.Ticket{}
	in.number(open)
	in.finished(open)
	if !in.news() {
		t.Error("no news of an operation that has finished")
	}
	in.offer()
	in.forget()
	if len(in.done) != 1 || in.news() {
		t.Errorf("%d are kept, news %v; want the open one, and that it was left", len(in.done), in.news())
	}
	another := &host.Ticket{}
	in.number(another)
	in.finished(another)
	if !in.news() {
		t.Error("no news of another")
	}
	var numbers [8]int32
	if n := in.tell(numbers[:]); n != 2 || in.news() {
		t.Errorf("%d told, news %v; want 2 and none", n, in.news())
	}
}

// What finishes when the guest has looked for the last time and has not returned
// yet is not taken for something that it left: it is called again.
func TestFinishedAtReturn(t *testing.T) {
	for _, asks := range []bool{true, false} {
		in := &instance{tickets: map[int32]*host.Ticket{}, seats: map[uint32]*seat{}, wake: make(chan struct{}, 1)}
		for i := range 3 {
			in.offer()
			var numbers [8]int32
			if asks {
				in.tell(numbers[:])
			}
			ticket := &host.Ticket{}
			in.number(ticket)
			in.finished(ticket)
			in.forget()
			if !in.news() {
				t.Errorf("asks %v, crossing %d: no news of what finished meanwhile", asks, i)
			}
		}
	}
}

// The grace of a call stands still while others have the turn.
func TestGraceOfOthers(t *testing.T) {
	for _, tt := range []struct {
		others time.Duration
		stops  bool
	}{{0, true}, {1500 * time.Millisecond, false}} {
		c := callLimited(t.Context(), &record{}, limits, "x")
		c.SetTimeout(time.Nanosecond, errors.New("over"))
		c.StartMovableClock(time.Now())
		now := time.Now().Add(time.Hour)
		s := &seat{call: c, ended: now.Add(-2 * time.Second), credited: tt.others}
		in := &instance{grace: time.Second, seats: map[uint32]*seat{1: s}, busy: tt.others}
		if got := in.look(now) == s; got != tt.stops {
			t.Errorf("after two seconds, %s of them others': stopped %v, want %v", tt.others, got, tt.stops)
		}
		c.Close()
	}
}
