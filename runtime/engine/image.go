package engine

import (
	"bytes"

	"github.com/tetratelabs/wazero/api"
)

// image is an instance as it was after _initialize, to set it back to. The
// tables are not in it: a module that can change them is refused.
type image struct {
	module  api.Module
	memory  []byte
	globals []api.MutableGlobal
	values  []uint64
	dirty   bool
}

// takeImage keeps the memory of an instance and its mutable globals, which the
// rewrite exports under the given names.
func takeImage(m api.Module, globals []string) *image {
	view, _ := m.Memory().Read(0, m.Memory().Size())
	i := &image{module: m, memory: append([]byte{}, view...)}
	for _, name := range globals {
		g := m.ExportedGlobal(name).(api.MutableGlobal)
		i.globals = append(i.globals, g)
		i.values = append(i.values, g.Get())
	}
	return i
}

// imagePage is how much is compared at a time: what is the same is not written.
const imagePage = 4 << 10

// restore sets the instance back.
func (i *image) restore() {
	if !i.dirty {
		i.dirty = true // by the call that comes now
		return
	}
	memory, _ := i.module.Memory().Read(0, uint32(len(i.memory)))
	for at := 0; at < len(memory); at += imagePage {
		end := min(at+imagePage, len(memory))
		if !bytes.Equal(memory[at:end], i.memory[at:end]) {
			copy(memory[at:end], i.memory[at:end])
		}
	}
	for n, g := range i.globals {
		g.Set(i.values[n])
	}
}

// clean forgets what an instance keeps of a call beside its memory.
func (in *instance) clean() {
	in.lastError, in.rung, in.kept, in.output.cause = "", false, nil, ""
	in.output.partial = in.output.partial[:0]
}

// grown reports whether the memory is larger than the image: it cannot be made
// smaller, so another instance must take its place.
func (i *image) grown() bool { return int(i.module.Memory().Size()) > len(i.memory) }
