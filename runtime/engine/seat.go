package engine

import (
	"slices"
	"time"

	"github.com/pelton-run/pelton/host"
)

// seat is a call's place in an instance, or in the queue for one.
type seat struct {
	call   *host.Call
	turn   chan turn // told once that the call is over, or to drive an instance
	queued time.Time
	id     uint32 // of the only delivery of a call that shares its instance

	own      time.Duration // guest time
	busy     time.Duration // the instance's guest time when the call came in
	credited time.Duration // of others' guest time, put on the deadline
	ended    time.Time     // when the call was first seen to go on beyond its time
	late     time.Duration // of others' guest time, until then
	over     bool
	err      error
}

// turn is what a waiting seat is told: to drive an instance, to make one first,
// or, with neither, that its call is over.
type turn struct {
	drive  *instance
	create bool
	apart  bool
}

// wait prepares a seat for waiting for its turn.
func (s *seat) wait() {
	if s.turn == nil {
		s.turn = make(chan turn, 1)
	}
}

// account charges the guest time since the last look to whoever has the turn, or
// is alone. A goroutine that wakes by a timer or a channel of the guest's own
// speaks in nobody's name at first.
func (in *instance) account(now time.Time) {
	took := now.Sub(in.mark)
	in.mark = now
	s := in.holder
	if s == nil && len(in.seats) == 1 {
		for _, s = range in.seats {
		}
	}
	if s != nil { // else it is nobody's, and not taken off anybody's time
		in.busy += took
		s.own += took
	}
}

// hold gives the turn to a seat: a call in its name has come.
func (in *instance) hold(s *seat) {
	if s == in.holder {
		return
	}
	in.account(time.Now())
	in.holder = s
}

// find returns the seat of a delivery or batch that is in flight here, and
// gives it the turn.
func (in *instance) find(id uint32) *seat {
	if s := in.holder; s != nil && !s.over && s.call.Delivery(id) != nil {
		return s
	}
	s := in.seats[id]
	if s != nil {
		in.hold(s)
	}
	return s
}

// settled ends a seat's call: its deliveries have their outcome, and nothing
// that the guest says in its name counts any longer.
func (in *instance) settled(s *seat, err error) {
	if s.over {
		return
	}
	if s == in.holder {
		in.account(time.Now())
		in.holder = nil
	}
	s.over, s.err = true, err
	delete(in.seats, s.id)
	s.call.EachTicket(in.abandon)
	s.call.Usage.Guest = s.own
	if s != in.driver {
		s.turn <- turn{}
	}
}

// look finds the calls whose time is over: they are told first, and when their
// grace is over too the first of them is returned. It sets when to look again.
func (in *instance) look(now time.Time) (stop *seat) {
	in.lookAt = now.Add(lookLatest)
	for _, s := range in.seats {
		others := in.busy - s.busy - s.own
		if others > s.credited {
			s.call.Postpone(others - s.credited)
			s.credited = others
		}
		switch {
		case s.call.Ended(now) == nil:
			if d := s.call.Deadline(); !d.IsZero() && d.Before(in.lookAt) {
				in.lookAt = d
			}
		case s.ended.IsZero():
			s.ended, s.late = now, others
			s.call.Expire()
			in.expire(s.id)
		case now.Sub(s.ended)-(others-s.late) >= in.grace:
			stop = s
		}
	}
	return stop
}

// lookLatest bounds the time between two looks: the end of the host's patience
// is not a deadline that is known before.
const lookLatest = 25 * time.Millisecond

// expire has the guest told that a call's time is over.
func (in *instance) expire(id uint32) {
	in.mu.Lock()
	in.expired = append(in.expired, id)
	in.came++
	in.mu.Unlock()
}

// finished has the guest told that an operation has finished. Any goroutine
// calls it.
func (in *instance) finished(t *host.Ticket) {
	in.mu.Lock()
	in.done = append(in.done, t)
	in.came++
	in.mu.Unlock()
	select {
	case in.wake <- struct{}{}:
	default: // it has been woken and has not looked yet
	}
}

// abandon forgets an operation whose call has ended. The guest is told that it
// has finished: a goroutine that was left behind waits for it, and is refused.
func (in *instance) abandon(t *host.Ticket) {
	delete(in.tickets, t.Number)
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.abandoned) < maxAbandoned {
		in.abandoned = append(in.abandoned, t.Number)
		in.came++
	}
}

// maxAbandoned bounds what a guest is told that never asks.
const maxAbandoned = 10_000

// news reports whether there is something to tell the guest that it has not left
// where it was.
func (in *instance) news() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.untold() > 0 && in.came > in.left
}

// untold is how much there is to tell; under the lock.
func (in *instance) untold() int { return len(in.done) + len(in.expired) + len(in.abandoned) }

// offer takes note of what there is to tell when the guest is called.
func (in *instance) offer() {
	in.mu.Lock()
	in.offered = in.came
	in.mu.Unlock()
}

// forget drops what is of no use to tell any more, and takes note of what the
// guest has left where it was: it is not called again for that. What came while
// the guest ran, it may have looked too early to see: for that it is.
func (in *instance) forget() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.untold() == 0 {
		return
	}
	in.done = slices.DeleteFunc(in.done, func(t *host.Ticket) bool { return in.tickets[t.Number] != t })
	in.expired = slices.DeleteFunc(in.expired, func(id uint32) bool { return in.seats[id] == nil })
	in.left = in.offered
}

// openTickets reports whether anything that was started has not been collected.
func (in *instance) openTickets() bool { return len(in.tickets) > 0 }
