package engine

import (
	"fmt"
	"time"

	"github.com/pelton-run/pelton/host"
)

// maxScratch bounds what an instance keeps of its scratch memory.
const maxScratch = 1 << 20

// cross calls the guest if there is a reason to: new calls, news of operations,
// a timer of its own. The error is how it ended if it did; no call of the
// instance is settled then but those that had ended before.
func (in *instance) cross(fresh []*seat, now time.Time) (err error) {
	in.enter(now)
	in.offer()
	for _, s := range fresh {
		in.seat(s, now)
	}
	switch {
	case len(fresh) > 0 && !in.shared:
		err = in.callHandle(fresh[0])
	case len(fresh) > 0:
		in.stack[0], in.stack[1] = uint64(fresh[0].id), uint64(len(fresh))
		err = in.start.CallWithStack(in.invocation, in.stack[:2])
	case in.news() || !in.wakeAt.IsZero() && !now.Before(in.wakeAt):
		err = in.resume.CallWithStack(in.invocation, in.stack[:1])
	default:
		return nil
	}
	if len(in.output.partial) > 0 {
		in.output.flush()
	}
	if cap(in.scratch) > maxScratch {
		in.scratch = nil
	}
	in.kept = nil
	if err != nil {
		return in.explain(err)
	}
	in.output.cause = "" // a panic that the guest survived
	if in.module.IsClosed() {
		return fmt.Errorf("%w: the guest ended its program", ErrExit)
	}
	return in.returned()
}

// callHandle runs a batch from its begin to its end.
func (in *instance) callHandle(s *seat) error {
	in.stack = [3]uint64{uint64(s.id), uint64(s.id + 1), uint64(len(s.call.Deliveries()))}
	if err := in.handle.CallWithStack(in.invocation, in.stack[:]); err != nil {
		return err
	}
	if !in.module.IsClosed() {
		in.settled(s, nil)
	}
	return nil
}

// returned reads what the guest says about the deliveries that it has left: how
// many, and when it wants to be called for them.
func (in *instance) returned() error {
	now := time.Now()
	if in.holder != nil {
		in.account(now)
		in.holder = nil // outside of the guest it is nobody's turn
	}
	in.wakeAt = time.Time{}
	in.forget()
	if !in.shared || len(in.seats) == 0 {
		return nil
	}
	unfinished, wake := uint32(in.stack[0]), int32(in.stack[0]>>32)
	if unfinished == 0 {
		for _, s := range in.seats {
			in.settled(s, nil) // without a word, which counts as a failure
		}
		return nil
	}
	if wake >= 0 {
		in.wakeAt = now.Add(time.Duration(wake) * time.Millisecond)
		return nil
	}
	if !in.openTickets() && !in.news() {
		return errHopeless
	}
	return nil
}

// down ends every call of an instance that went down with err. The one that had
// the turn runs alone next, the others with half the company.
func (in *instance) down(err error) {
	if len(in.seats) == 1 {
		for _, s := range in.seats {
			in.settled(s, err)
		}
		return
	}
	half := max(1, len(in.seats)/2)
	culprit := in.holder
	for _, s := range in.seats {
		company := half
		if s == culprit {
			company = 1
		}
		in.settled(s, &host.Crowded{Err: err, Company: company})
	}
}

// rest waits until there is a reason to cross again. The error is that of a call
// that has not ended in its time and grace.
func (in *instance) rest() error {
	now := time.Now()
	if !now.Before(in.lookAt) {
		if stop := in.look(now); stop != nil {
			in.holder = stop
			return in.explain(errStopped)
		}
	}
	if in.news() {
		return nil
	}
	until := in.lookAt
	if !in.wakeAt.IsZero() && in.wakeAt.Before(until) {
		until = in.wakeAt
	}
	timer := time.NewTimer(until.Sub(now))
	defer timer.Stop()
	select {
	case <-in.wake:
	case <-timer.C:
	}
	return nil
}

// tell fills numbers with what the guest has not been told: tickets that have
// finished, and below zero the calls whose time is over.
func (in *instance) tell(numbers []int32) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	n, took := 0, 0
	for _, t := range in.done {
		if n == len(numbers) {
			break
		}
		took++
		if in.tickets[t.Number] == t { // it may have been collected since, or its call have ended
			numbers[n] = t.Number
			n++
		}
	}
	in.done = drop(in.done, took)
	took = 0
	for _, id := range in.expired {
		if n == len(numbers) {
			break
		}
		took++
		if in.seats[id] != nil {
			numbers[n] = -int32(id)
			n++
		}
	}
	in.expired = drop(in.expired, took)
	took = copy(numbers[n:], in.abandoned)
	in.abandoned = drop(in.abandoned, took)
	in.left = 0
	return n + took
}

// drop removes the first n elements in place.
func drop[T any](list []T, n int) []T {
	kept := copy(list, list[n:])
	clear(list[kept:])
	return list[:kept]
}

// number gives an operation's ticket its number.
func (in *instance) number(t *host.Ticket) int32 {
	if in.nextTicket++; in.nextTicket < 0 {
		in.nextTicket = 1
	}
	t.Number = in.nextTicket
	if in.holder != nil {
		t.Owner = in.holder.id
	}
	in.tickets[t.Number] = t
	return t.Number
}
