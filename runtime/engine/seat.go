package engine

import (
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

// account charges the guest time since the last look to whoever has the turn.
func (in *instance) account(now time.Time) {
	took := now.Sub(in.mark)
	in.mark = now
	in.busy += took
	if in.holder != nil {
		in.holder.own += took
	}
}

// hold gives the turn to a seat: a call in its name has come.
func (in *instance) hold(s *seat) {
	if s == in.holder {
		return
	}
	now := time.Now()
	in.account(now)
	in.holder, in.held = s, now
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
	s.call.EachTicket(func(t *host.Ticket) { delete(in.tickets, t.Number) })
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
		if others := in.busy - s.busy - s.own; others > s.credited {
			s.call.Postpone(others - s.credited)
			s.credited = others
		}
		switch {
		case s.call.Ended(now) == nil:
			if d := s.call.Deadline(); !d.IsZero() && d.Before(in.lookAt) {
				in.lookAt = d
			}
		case s.ended.IsZero():
			s.ended = now
			s.call.Expire()
			in.expire(s.id)
		case now.Sub(s.ended) >= in.grace:
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
	in.mu.Unlock()
}

// finished has the guest told that an operation has finished. Any goroutine
// calls it.
func (in *instance) finished(t *host.Ticket) {
	in.mu.Lock()
	in.done = append(in.done, t)
	in.mu.Unlock()
	select {
	case in.wake <- struct{}{}:
	default: // it has been woken and has not looked yet
	}
}

// news reports whether there is something to tell the guest.
func (in *instance) news() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.done)+len(in.expired) > 0
}

// openTickets reports whether anything that was started has not been collected.
func (in *instance) openTickets() bool { return len(in.tickets) > 0 }
