package runtime

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pelton-run/pelton/host"
)

// Stats are the figures of a function on this host since it was started. It is
// safe for concurrent use.
type Stats struct {
	Delivered   atomic.Uint64 // deliveries that arrived
	Redelivered atomic.Uint64 // of them, not for the first time
	Acked       atomic.Uint64
	Naked       atomic.Uint64
	Termed      atomic.Uint64 // given up on
	DeadLetters atomic.Uint64 // given up on and stored
	Invocations atomic.Uint64
	Unsettled   atomic.Uint64 // that the stream could not be told of
	GuestTime   atomic.Int64  // nanoseconds inside the guest, waits not counted
	Fuel        atomic.Uint64 // of the metering, rounded up to refills
	HostCalls   atomic.Uint64
	LogDropped  atomic.Uint64 // lines of the guest above the limit

	Handler Histogram // of invocations
	Done    Histogram // from stored in the stream to acked

	mu        sync.Mutex
	lastError LastError
}

// LastError is the newest error of a function.
type LastError struct {
	Text    string    `json:"text,omitempty"`
	Subject string    `json:"subject,omitempty"`
	Time    time.Time `json:"time,omitzero"`
}

// NewStats returns figures that are all zero.
func NewStats() *Stats { return &Stats{} }

// InFlight is how many deliveries have arrived and are not settled.
func (s *Stats) InFlight() int64 {
	done := s.Acked.Load() + s.Naked.Load() + s.Termed.Load() + s.Unsettled.Load()
	return max(0, int64(s.Delivered.Load()-done)) // what arrives in between may count too little
}

func (s *Stats) arrive(batch []Delivery) {
	s.Delivered.Add(uint64(len(batch)))
	for _, d := range batch {
		if d.Message().NumDelivered > 1 {
			s.Redelivered.Add(1)
		}
	}
}

func (s *Stats) invoked(took time.Duration, u host.Usage) {
	s.Invocations.Add(1)
	s.GuestTime.Add(int64(u.Guest))
	s.Fuel.Add(u.Fuel)
	s.HostCalls.Add(u.HostCalls)
	s.Handler.Add(took)
}

func (s *Stats) settled(m *host.Message, v Verdict, age time.Duration, err error) {
	if err != nil {
		s.Unsettled.Add(1)
		s.fail(m, err.Error())
		return
	}
	switch v.Action {
	case Ack:
		s.Acked.Add(1)
		s.Done.Add(age)
		return
	case Retry:
		s.Naked.Add(1)
	case GiveUp:
		s.Termed.Add(1)
		if v.Kept {
			s.DeadLetters.Add(1)
		}
	}
	s.fail(m, v.Error)
}

func (s *Stats) fail(m *host.Message, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastError = LastError{Text: text, Subject: m.Subject, Time: time.Now()}
}

// LastError returns the newest error; it is empty if there was none.
func (s *Stats) LastError() LastError {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastError
}

// Histogram counts durations in buckets of an eighth of a power of two, so that
// a quantile is right to 12 %. It is safe for concurrent use and never
// allocates.
type Histogram struct {
	buckets [64 * 8]atomic.Uint64
}

// Add counts one duration.
func (h *Histogram) Add(d time.Duration) { h.buckets[bucketOf(d)].Add(1) }

// bucketOf returns the bucket of a duration: the position of its highest bit
// and the three bits below that.
func bucketOf(d time.Duration) int {
	n := uint64(max(d, 8))
	top := bits.Len64(n) - 1
	return top*8 + int(n>>(top-3)&7)
}

// Quantile returns the duration below which the share q of all lie, 0 if none
// was counted.
func (h *Histogram) Quantile(q float64) time.Duration {
	var total uint64
	for i := range h.buckets {
		total += h.buckets[i].Load()
	}
	rank, seen := uint64(q*float64(total)+0.5), uint64(0)
	for i := range h.buckets {
		seen += h.buckets[i].Load()
		if seen >= max(rank, 1) {
			top, fraction := i/8, uint64(i%8)
			return time.Duration((8 + fraction) << top >> 3)
		}
	}
	return 0
}
