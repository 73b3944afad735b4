package runtime

import (
	"sync"
	"sync/atomic"
	"time"
)

// State is how well a function is, from the worst to the best.
type State uint8

// The states other than well.
const (
	Paused   State = iota // it takes nothing until somebody has looked
	Failing               // something must be mended
	Degraded              // it goes on, worse than it should
)

// Trouble is one reason for a state.
type Trouble struct {
	State  State
	Reason string
}

// The kinds of trouble that are set and cleared; one of each at a time.
const (
	paused  = iota // for good
	letters        // dead letters cannot be stored
	kinds
)

// troubles is what is wrong with a function. It is safe for concurrent use.
type troubles struct {
	halted atomic.Bool // whether it is paused: asked before each dispatch

	mu      sync.Mutex
	reasons [kinds]string
	since   [kinds]time.Time // when it was last so
}

// notStored says that dead letters cannot be stored.
func (t *troubles) notStored(err error) {
	t.set(letters, "dead letters cannot be stored, so messages are kept: "+err.Error())
}

// lettersFor is how long it is said that dead letters cannot be stored after that
// was last so: the message may have gone to another host.
const lettersFor = 10 * time.Minute

func (t *troubles) set(kind int, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reasons[kind], t.since[kind] = reason, time.Now()
	t.halted.Store(t.reasons[paused] != "")
}

func (t *troubles) clear(kind int) { t.set(kind, "") }

func (t *troubles) get(kind int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if kind == letters && time.Since(t.since[kind]) > lettersFor {
		return ""
	}
	return t.reasons[kind]
}

// Troubles says what is wrong with the function, the worst first.
func (f *Function) Troubles() []Trouble {
	var all []Trouble
	add := func(s State, reason string) {
		if reason != "" {
			all = append(all, Trouble{s, reason})
		}
	}
	add(Paused, f.troubles.get(paused))
	add(Failing, f.troubles.get(letters))
	if f.outbox != nil {
		add(Failing, f.outbox.trouble())
	}
	add(Degraded, f.breaker.trouble())
	return all
}
