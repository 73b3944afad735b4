package runtime

import (
	"fmt"
	"time"
)

// Record is what is kept of a message that failed, or that was being handled
// when its host died.
type Record struct {
	Attempts int       `json:"attempts,omitempty"` // that were charged
	First    time.Time `json:"first,omitzero"`     // failure
	Last     time.Time `json:"last,omitzero"`      // failure
	Error    string    `json:"error,omitempty"`    // of the last failure
	Starts   int       `json:"starts,omitempty"`   // of handlers that ran when their host died
	Alone    int       `json:"alone,omitempty"`    // of them, with nothing else on the host
}

// The marks of a message whose handler may be what kills the host.
const (
	// SuspectAfter starts without an end, a message runs with nothing beside it.
	SuspectAfter = 2
	// CondemnAfter starts without an end, the last of them alone, it is given up on.
	CondemnAfter = 3
)

// Suspect reports whether the message must run with nothing beside it on the host.
func (r Record) Suspect() bool { return r.Starts >= SuspectAfter }

// Condemned reports whether the message is given up on without a call.
func (r Record) Condemned() bool { return r.Starts >= CondemnAfter && r.Alone > 0 }

// condemnation is the error of a message that is given up on without a call.
func (r Record) condemnation() error {
	return fmt.Errorf("the host died %d times while it handled this message, %d times with nothing beside it", r.Starts, r.Alone)
}

// failed returns the record with one more failure. Whoever failed has ended, so
// nothing is known against it as a killer of hosts.
func (r Record) failed(now time.Time, text string, charged bool) Record {
	if r.First.IsZero() {
		r.First = now
	}
	r.Last, r.Error, r.Starts, r.Alone = now, text, 0, 0
	if charged {
		r.Attempts++
	}
	return r
}
