package trigger

import "sync"

// Quiet lets a message that may be what killed the host run with nothing beside
// it: then, if the host dies again, there is no doubt about the reason. All
// triggers of a host share one. It is safe for concurrent use.
type Quiet struct{ mu sync.RWMutex }

// enter begins a dispatch, which leave ends. Alone it waits for those that run, and
// the others wait for it.
func (q *Quiet) enter(alone bool) {
	if alone {
		q.mu.Lock()
	} else {
		q.mu.RLock()
	}
}

func (q *Quiet) leave(alone bool) {
	if alone {
		q.mu.Unlock()
	} else {
		q.mu.RUnlock()
	}
}
