package runtime

import "sync"

// State is how well a function is, from the worst to the best.
type State uint8

// The states.
const (
	Paused   State = iota // it takes nothing until somebody has looked
	Failing               // something must be mended
	Degraded              // it goes on, worse than it should
	OK
)

// Trouble is one reason for a state other than OK.
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
	mu      sync.Mutex
	reasons [kinds]string
}

func (t *troubles) set(kind int, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reasons[kind] = reason
}

func (t *troubles) clear(kind int) { t.set(kind, "") }

func (t *troubles) get(kind int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
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
