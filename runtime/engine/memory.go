package engine

import "github.com/tetratelabs/wazero/experimental"

// memoryLimit allocates an instance's memory up to the manifest's limit; growth
// beyond it fails in the guest.
type memoryLimit struct{ bytes uint64 }

// Allocate implements experimental.MemoryAllocator.
func (l memoryLimit) Allocate(capacity, _ uint64) experimental.LinearMemory {
	return &linearMemory{limit: l.bytes}
}

type linearMemory struct {
	b     []byte
	limit uint64
}

// Reallocate implements experimental.LinearMemory: nil refuses the growth.
func (m *linearMemory) Reallocate(size uint64) []byte {
	if size > m.limit {
		return nil
	}
	if size > uint64(cap(m.b)) {
		// Twice what is asked for, so that a guest that grows page by page is not
		// copied each time; what is not touched costs no memory.
		grown := make([]byte, size, min(2*size, m.limit))
		copy(grown, m.b)
		m.b = grown
	}
	m.b = m.b[:size]
	return m.b
}

// Free implements experimental.LinearMemory.
func (m *linearMemory) Free() { m.b = nil }
