//go:build wasip1

package sdk

import "unsafe"

// task is a delivery that came by itself, with its context.
type task struct {
	msg     Msg
	context taskContext
}

// readDeliveries reads deliveries. One copy is made for all of them: texts and
// bodies are views of it.
func readDeliveries(first, count uint32) ([]task, error) {
	read := func(buf unsafe.Pointer, capacity uint32) int32 { return hostDeliveryRead(first, count, buf, capacity) }
	buf := takeScratch()
	whole, err := answer(buf, read(at(buf)), read)
	if err != nil {
		return nil, err
	}
	c := cursor{unsafe.Pointer(unsafe.SliceData(append([]byte(nil), whole.b...)))}
	whole.release()
	tasks := make([]task, c.u32())
	for i := range tasks {
		m := &tasks[i].msg
		m.id, m.trigger, m.subject, m.reply, m.headers, m.data = c.u32(), c.str(), c.str(), c.str(), c.pairs(), c.blob()
		m.metadata.Stream, m.metadata.Consumer = c.str(), c.str()
		m.metadata.Sequence.Stream, m.metadata.Sequence.Consumer = c.u64(), c.u64()
		m.metadata.NumDelivered, m.metadata.NumPending = c.u64(), c.u64()
		m.stored = int64(c.u64())
		tasks[i].context.id = m.id
	}
	return tasks, nil
}

// cursor decodes what the host wrote, as views. The host writes whole frames, so
// nothing is checked here: reading deliveries is the hot path of every guest.
type cursor struct{ at unsafe.Pointer }

func (c *cursor) u32() uint32 {
	v := *(*uint32)(c.at) // wasm is little-endian, and takes any address
	c.at = unsafe.Add(c.at, 4)
	return v
}

func (c *cursor) u64() uint64 {
	v := *(*uint64)(c.at)
	c.at = unsafe.Add(c.at, 8)
	return v
}

func (c *cursor) str() string {
	n := int(c.u32())
	s := unsafe.String((*byte)(c.at), n)
	c.at = unsafe.Add(c.at, n)
	return s
}

func (c *cursor) blob() []byte {
	n := int(c.u32())
	b := unsafe.Slice((*byte)(c.at), n)
	c.at = unsafe.Add(c.at, n)
	return b
}

func (c *cursor) pairs() Header {
	n := c.u32()
	if n == 0 {
		return nil
	}
	h := make(Header, n)
	for range n {
		k := c.str()
		h[k] = append(h[k], c.str())
	}
	return h
}
