package trigger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"unsafe"

	"github.com/pelton-run/pelton/runtime"
)

// marks is a file in memory that says which messages a trigger's handlers are at.
// A process that is killed leaves it behind as it was at that moment: what was
// written to a shared mapping is in the file, without anybody writing it there.
// A machine that loses power may lose it; no handler of ours does that.
//
// The file is of words of 64 bits, in the order of this machine's bytes: the
// header, then a slot for each worker: a state, and the sequences.
type marks struct {
	file  *os.File
	words []uint64
	slot  int // words of one
	unmap func() error
}

// The header's words.
const (
	markMagic   = iota // says what the file is
	markCreated        // when the stream was created
	markSlot           // words of a slot
	markHeader         // how many there are
)

const magic = 0x31534b52414d4c50

// The state of a slot: how many sequences follow, and whether nothing else ran.
const aloneBit = 1 << 32

// started is a message whose handler had begun when its host died.
type started struct {
	sequence uint64
	alone    bool
	word     int // where the file has it
}

// openMarks opens the marks of a trigger, for workers that each handle so many
// messages at a time. left is what another process has left behind, of the stream
// that was created then.
func openMarks(path string, created int64, workers, each int) (m *marks, left []started, err error) {
	if left, err = readMarks(path, created); err != nil {
		return nil, nil, fmt.Errorf("read marks: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, nil, fmt.Errorf("create folder of marks: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open marks: %w", err)
	}
	m = &marks{file: f, slot: 1 + each}
	size := 8 * (markHeader + workers*m.slot)
	have := int64(0)
	if len(left) == 0 {
		err = f.Truncate(0) // what is there is of no interest
	} else if info, statErr := f.Stat(); statErr == nil {
		have = info.Size() // it is not cut before it is kept elsewhere
	}
	var memory []byte
	if more := int64(size) - have; err == nil && more > 0 {
		_, err = f.WriteAt(make([]byte, more), have) // so that a full disk is an error here, and not a fault later
	}
	if err == nil {
		memory, m.unmap, err = mapShared(f, size)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("map marks: %w", err), f.Close())
	}
	m.words = unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(memory))), size/8)
	if len(left) == 0 {
		m.clear(created)
	}
	return m, left, nil
}

// kept forgets one message that was left behind: it is noted elsewhere.
func (m *marks) kept(s started) {
	if s.word < len(m.words) {
		m.words[s.word] = 0
	}
}

// clear forgets all that was left behind.
func (m *marks) clear(created int64) {
	m.file.Truncate(int64(8 * len(m.words))) // slots of an earlier manifest go too; what stays is cleared
	clear(m.words)
	m.words[markSlot], m.words[markCreated] = uint64(m.slot), uint64(created)
	m.words[markMagic] = magic
}

func readMarks(path string, created int64) (left []started, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || len(b) < 8*markHeader {
		return nil, err
	}
	words := make([]uint64, len(b)/8)
	for i := range words {
		words[i] = binary.NativeEndian.Uint64(b[8*i:])
	}
	slot := int(words[markSlot])
	if words[markMagic] != magic || words[markCreated] != uint64(created) || slot < 2 || slot > len(words) {
		return nil, nil // of another stream, or broken off at its making
	}
	for at := markHeader; at+slot <= len(words); at += slot {
		state := words[at]
		n := min(int(state&(aloneBit-1)), slot-1)
		for word := at + 1; word <= at+n; word++ {
			if words[word] != 0 { // otherwise it was kept before that broke off
				left = append(left, started{words[word], state&aloneBit != 0, word})
			}
		}
	}
	return left, nil
}

// begin says that a worker's handler is given a batch. It is on the path of every
// message and makes no system call.
func (m *marks) begin(worker int, batch []runtime.Delivery, alone bool) {
	if m == nil {
		return
	}
	slot := m.words[markHeader+worker*m.slot:][:m.slot]
	for i, d := range batch {
		slot[1+i] = d.Message().StreamSeq
	}
	state := uint64(len(batch))
	if alone {
		state |= aloneBit
	}
	atomic.StoreUint64(&slot[0], state)
}

// end says that the handler has returned and its messages are settled.
func (m *marks) end(worker int) {
	if m != nil {
		atomic.StoreUint64(&m.words[markHeader+worker*m.slot], 0)
	}
}

func (m *marks) close() error {
	if m == nil {
		return nil
	}
	return errors.Join(m.unmap(), m.file.Close())
}
