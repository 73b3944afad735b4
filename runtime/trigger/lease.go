package trigger

import (
	"context"
	"sync"
	"time"
)

// leaseTick is how often leases are looked at. The shortest ack_wait is 3 s and
// a lease is extended at a third of it.
const leaseTick = 500 * time.Millisecond

// Leases extends the leases of everything that a host holds, queued or running,
// so that work may take many times ack_wait. One goroutine serves all triggers.
type Leases struct {
	mu   sync.Mutex
	sets map[*leaseSet]struct{}
}

// NewLeases makes the leases of a host. Run must be running.
func NewLeases() *Leases { return &Leases{sets: map[*leaseSet]struct{}{}} }

// Run extends leases until ctx ends.
func (l *Leases) Run(ctx context.Context) {
	ticker := time.NewTicker(leaseTick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			l.extend(now)
		}
	}
}

func (l *Leases) extend(now time.Time) {
	l.mu.Lock()
	sets := make([]*leaseSet, 0, len(l.sets))
	for s := range l.sets {
		sets = append(sets, s)
	}
	l.mu.Unlock()
	for _, s := range sets {
		s.extend(now)
	}
}

func (l *Leases) add(s *leaseSet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sets[s] = struct{}{}
}

func (l *Leases) remove(s *leaseSet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sets, s)
}

// leaseSet is the deliveries that one trigger holds: a list through the
// deliveries themselves, in the order of their last extension, so that a tick
// looks only at those that are due.
type leaseSet struct {
	every time.Duration // a third of ack_wait
	ends  time.Duration // after the last extension: ack_wait

	room chan struct{} // told when few enough are held

	mu       sync.Mutex
	held     int
	few      int // at which room is told
	released uint64
	head     delivery // of a ring; holds no message
}

func newLeaseSet(ackWait time.Duration) *leaseSet {
	s := &leaseSet{every: ackWait / 3, ends: ackWait, room: make(chan struct{}, 1), few: -1}
	s.head.next, s.head.prev = &s.head, &s.head
	return s
}

// set says how long a lease lasts.
func (s *leaseSet) set(ackWait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.every, s.ends = ackWait/3, ackWait
}

func (s *leaseSet) hold(d *delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.extended = time.Now()
	s.held++
	s.append(d)
}

// counts is how many deliveries are held, and how many were ever released.
func (s *leaseSet) counts() (held int, released uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held, s.released
}

// tellAt has room told once no more than so many are held, at once if that is so.
func (s *leaseSet) tellAt(few int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.few = few
	s.tell()
}

// tell tells room if few enough are held; under the lock.
func (s *leaseSet) tell() {
	if s.held > s.few {
		return
	}
	select {
	case s.room <- struct{}{}:
	default: // it has been told and has not looked yet
	}
}

func (s *leaseSet) append(d *delivery) {
	last := s.head.prev
	last.next, d.prev, d.next, s.head.prev = d, last, &s.head, d
}

// release lets a delivery go, and reports whether its lease was still held.
func (s *leaseSet) release(d *delivery) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.next == nil {
		return false // it was released before
	}
	s.held--
	s.released++
	s.unlink(d)
	s.tell()
	return time.Since(d.extended) < s.ends
}

// lost reports whether a delivery's lease is no longer held: the host was frozen,
// or cut off, for too long. Another one may have the message.
func (s *leaseSet) lost(d *delivery) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return d.next == nil || time.Since(d.extended) >= s.ends
}

func (s *leaseSet) unlink(d *delivery) {
	d.prev.next, d.next.prev = d.next, d.prev
	d.next, d.prev = nil, nil
}

// extend tells the server of the deliveries that are due. One whose lease is lost
// is left alone, and what cannot be sent is tried again at the next tick: what the
// connection buffers may reach the server too late.
func (s *leaseSet) extend(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for d := s.head.next; d != &s.head; {
		next, age := d.next, now.Sub(d.extended)
		if age < s.every {
			return // and so are all behind it
		}
		if age < s.ends {
			if !d.connected() || d.reply("+WPI") != nil {
				return
			}
			d.extended = now
			s.unlink(d)
			s.append(d)
		}
		d = next
	}
}
