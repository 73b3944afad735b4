package engine

import "github.com/tetratelabs/wazero/experimental"

// memoryLimit allocates an instance's memory up to the manifest's limit; growth
// beyond it fails in the guest.
type memoryLimit struct{ bytes uint64 }

// Allocate implements experimental.MemoryAllocator.
func (l memoryLimit) Allocate(capacity, _ uint64) experimental.LinearMemory {
	return &linearMemory{limit: l.bytes}
}

// linearMemory is an instance's memory. Room for all that it may ever have is
// reserved once, outside of Go's heap, so that growing neither copies nor takes
// twice as much until the collector runs.
type linearMemory struct {
	b     []byte
	limit uint64
}

// Reallocate implements experimental.LinearMemory: nil refuses the growth.
func (m *linearMemory) Reallocate(size uint64) []byte {
	if size > m.limit {
		return nil
	}
	if m.b == nil {
		if m.b = reserve(int(m.limit), int(size)); m.b == nil {
			return nil
		}
	}
	m.b = m.b[:size]
	return m.b
}

// Free implements experimental.LinearMemory.
func (m *linearMemory) Free() {
	if m.b != nil {
		release(m.b[:cap(m.b)])
		m.b = nil
	}
}
