package trigger

import (
	"sync"
	"time"
)

// The states of a trigger.
const (
	StateStarting = "starting"
	StateOK       = "ok"
	StateWaiting  = "waiting" // for something that may yet come: a stream, the server
	StateFailed   = "failed"  // for something that must be mended
	StateStandby  = "standby" // another host runs it
	StateStopped  = "stopped"
)

// State is what a trigger says of itself.
type State struct {
	Name        string    `json:"name"`
	Kind        string    `json:"kind"`
	Stream      string    `json:"stream,omitempty"`
	Durable     string    `json:"durable,omitempty"`
	Subject     string    `json:"subject,omitempty"`
	State       string    `json:"state"`
	Reason      string    `json:"reason,omitempty"`
	Pending     uint64    `json:"pending"`     // not yet delivered, of the whole durable
	Outstanding int       `json:"outstanding"` // delivered and not settled, of the whole durable
	LastMessage time.Time `json:"last_message,omitzero"`
	Notes       []string  `json:"notes,omitempty"` // what was changed on adoption
}

// board holds a trigger's state. It is safe for concurrent use.
type board struct {
	mu    sync.Mutex
	state State
}

func (b *board) update(f func(s *State)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.state)
}

func (b *board) set(state, reason string) {
	b.update(func(s *State) { s.State, s.Reason = state, reason })
}

func (b *board) get() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}
