package runtime

import (
	"fmt"
	"time"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
)

// Policy is what a manifest says about failed attempts.
type Policy struct {
	MaxDeliver int
	Backoff    []time.Duration // after attempt 1, 2, …; the last repeats
	MaxDelay   time.Duration   // the longest that a handler can ask for
	For        time.Duration   // since the message was stored; 0 is no limit
}

// PolicyOf returns the policy of a manifest.
func PolicyOf(r manifests.Retry) Policy {
	p := Policy{MaxDeliver: r.MaxDeliver, MaxDelay: r.MaxDelay.Std(), For: r.For.Std()}
	for _, b := range r.Backoff {
		p.Backoff = append(p.Backoff, b.Std())
	}
	return p
}

// Jitter is the most that is added to a delay, as a share of it. Nothing is
// ever taken off, so that no retry is early.
const Jitter = 0.1

// Action is what is done to a delivery.
type Action uint8

// The actions.
const (
	Ack Action = iota
	Retry
	GiveUp
)

// String names the action for the log.
func (a Action) String() string {
	switch a {
	case Ack:
		return "acked"
	case Retry:
		return "a message failed and is retried"
	}
	return "a message was given up on"
}

// The reasons for giving up, as the Pelton-Reason header has them.
const (
	ReasonTerm       = "term"        // the handler said so
	ReasonMaxDeliver = "max_deliver" // the attempts are used up
	ReasonRetryFor   = "retry_for"   // the time is used up
	ReasonCrash      = "crash"       // its handler ended the host, again and again
)

// Verdict is the decision about one delivery.
type Verdict struct {
	Action  Action
	Delay   time.Duration // with Retry
	Charged bool          // with Retry: it counts as an attempt
	Reason  string        // with GiveUp
	Error   string        // the handler's
	Record  Record        // this failure counted in
	Kept    bool          // with GiveUp: a dead letter is stored; dispatch knows
}

// Dispose decides what becomes of a delivery whose handler has ended. r is what
// is known of the attempts before, step which of the manifest's delays is next,
// from 1; age is the time since the message was stored, jitter a random number in
// [0, 1). It has no effects.
func (p Policy) Dispose(r Record, step int, age time.Duration, o host.Outcome, jitter float64) Verdict {
	switch {
	case o.Disposition == host.Ack:
		return Verdict{Action: Ack}
	case o.Disposition == host.Term:
		return Verdict{Action: GiveUp, Reason: ReasonTerm, Error: o.Reason}
	case o.Blameless:
		return Verdict{Action: Retry, Delay: jittered(p.delay(step, o.Delay), jitter), Error: o.Reason}
	}
	attempt := r.Attempts + 1
	if attempt >= p.MaxDeliver {
		return Verdict{Action: GiveUp, Reason: ReasonMaxDeliver, Error: fmt.Sprintf("attempt %d of %d: %s", attempt, p.MaxDeliver, o.Reason)}
	}
	delay := p.delay(attempt, o.Delay)
	if p.For > 0 && age+delay > p.For {
		return Verdict{Action: GiveUp, Reason: ReasonRetryFor, Error: fmt.Sprintf("attempt %d, %s after it was stored: %s", attempt, age.Round(time.Second), o.Reason)}
	}
	return Verdict{Action: Retry, Charged: true, Delay: jittered(delay, jitter), Error: o.Reason}
}

func jittered(delay time.Duration, jitter float64) time.Duration {
	return delay + time.Duration(jitter*Jitter*float64(delay))
}

// delay is what the handler asked for, within bounds, or the schedule's entry.
func (p Policy) delay(step int, asked time.Duration) time.Duration {
	if asked > 0 {
		return min(asked, p.MaxDelay)
	}
	return p.Backoff[min(max(step, 1), len(p.Backoff))-1]
}

// last is the longest step of the schedule, and a second at least.
func (p Policy) last() time.Duration { return max(p.Backoff[len(p.Backoff)-1], time.Second) }
