//go:build wasip1

package sdk

import (
	"context"
	"encoding/binary"
	"os"
	"runtime"
	"slices"
	"time"
	"unsafe"
)

// The exports, and the loop below them. Handlers run in goroutines of their own.
// The exported call lets them run until none can, and then returns to the host,
// or waits in it when it handles a batch. A goroutine that waits for the host is
// parked on a channel until the host has told that its operation is finished.

// bellFD is the file descriptor of the host's doorbell. Reading it parks the
// reading goroutine in Go's network poller, so that the scheduler itself finds out
// that nothing else can run, and tells the host in poll_oneoff when its next timer
// is due. See ABI.md, The doorbell.
const bellFD = 1 << 20

var (
	doorbell   = os.NewFile(bellFD, "doorbell")
	ring       [8]byte
	unfinished int                         // handlers that have not returned
	waiting    []*Msg                      // that no goroutine has taken yet, the last first
	tasks      = map[uint32]*taskContext{} // whose contexts were looked at, by the id of the delivery or batch
	ended      = map[uint32]struct{}{}     // others whose time is over
	parked     = map[int32]chan struct{}{} // by ticket
	early      = map[int32]struct{}{}      // tickets that finished before anybody waited
)

//go:wasmexport pelton_abi_1
func abiVersion() {}

//go:wasmexport pelton_handle
func peltonHandle(batch, first, count uint32) int64 {
	unfinished++
	go runBatch(batch, first, count)
	for {
		runtime.Gosched()
		if unfinished == 0 {
			return 0
		}
		rest()
		drain()
	}
}

//go:wasmexport pelton_start
func peltonStart(first, count uint32) int64 {
	msgs, err := readDeliveries(first, count)
	unfinished += len(msgs)
	slices.Reverse(msgs)
	waiting = append(msgs, waiting...)
	for id := first; err != nil && id < first+count; id++ {
		endDelivery(id, err)
	}
	return run()
}

//go:wasmexport pelton_resume
func peltonResume() int64 {
	drain()
	return run()
}

// run lets the handlers run until all of them wait. It returns how many there
// are, and in the high half after how many milliseconds a timer is due, -1 for
// none.
func run() int64 {
	for {
		for len(waiting) > 0 { // those that took the ones before wait for something
			go runWaiting()
			runtime.Gosched()
		}
		if unfinished == 0 {
			return 0
		}
		timer := rest()
		if unfinished == 0 {
			return 0
		}
		if drain() {
			continue
		}
		ms := int64(-1)
		if timer >= 0 {
			ms = min((timer+int64(time.Millisecond)-1)/int64(time.Millisecond), 1<<31-1)
		}
		return ms<<32 | int64(unfinished)
	}
}

// rest returns when no other goroutine can run, or the host has news. It returns
// the nanoseconds until the next timer, -1 for none.
func rest() int64 {
	if n, err := doorbell.Read(ring[:]); err != nil || n != len(ring) {
		panic("sdk: the host has no doorbell")
	}
	return int64(binary.LittleEndian.Uint64(ring[:]))
}

// drain wakes those that wait for what the host says has finished, and ends the
// contexts of deliveries whose time is over. It reports whether there was any.
func drain() (news bool) {
	for {
		var numbers [64]int32
		n := hostReady(unsafe.Pointer(&numbers), uint32(unsafe.Sizeof(numbers)))
		for _, v := range numbers[:max(n, 0)] {
			news = true
			if v < 0 {
				if t := tasks[uint32(-v)]; t != nil {
					t.end()
				} else {
					ended[uint32(-v)] = struct{}{}
				}
				continue
			}
			if c := parked[v]; c != nil {
				delete(parked, v)
				close(c)
			} else {
				early[v] = struct{}{}
			}
		}
		if int(n) < len(numbers) {
			return news
		}
	}
}

// park waits until an operation has finished.
func park(ticket int32) {
	c := make(chan struct{})
	if _, ok := early[ticket]; ok {
		delete(early, ticket)
		return
	}
	parked[ticket] = c
	<-c
}

// taskContext is the context of a batch, or of a delivery that came by itself.
type taskContext struct {
	id    uint32
	known bool          // among the tasks
	done  chan struct{} // made when it is asked for
	err   error
}

// Deadline says that the time is not known before: it does not run while others
// are at work.
func (t *taskContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is closed when the delivery's time is over.
func (t *taskContext) Done() <-chan struct{} {
	t.register()
	if t.done == nil {
		t.done = make(chan struct{})
		if t.err != nil {
			close(t.done)
		}
	}
	return t.done
}

// Err asks the host, so that a handler that computes can find out.
func (t *taskContext) Err() error {
	t.register()
	if t.err == nil {
		drain()
	}
	return t.err
}

// Value knows the delivery's id.
func (t *taskContext) Value(key any) any {
	if key == (idKey{}) {
		return t.id
	}
	return nil
}

func (t *taskContext) end() {
	if t.err != nil {
		return
	}
	t.err = context.DeadlineExceeded
	if t.done != nil {
		close(t.done)
	}
}

// register has the task told when its time is over. Most are never asked.
func (t *taskContext) register() {
	if t.known {
		return
	}
	t.known = true
	tasks[t.id] = t
	if _, over := ended[t.id]; over {
		t.end()
	}
}

// over forgets a task. What it started and left behind finds its context ended.
func (t *taskContext) over() {
	unfinished--
	if t.known {
		delete(tasks, t.id)
	}
	delete(ended, t.id)
	if t.err == nil {
		t.err = context.Canceled
		if t.done != nil {
			close(t.done)
		}
	}
}

// runWaiting handles deliveries that came by themselves, one after another as
// long as none of them waits for anything: then others are taken beside it.
func runWaiting() {
	for len(waiting) > 0 {
		m := waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		runOne(m)
	}
}

func runOne(m *Msg) {
	t := &taskContext{id: m.id}
	defer t.over()
	if single != nil {
		endDelivery(m.id, guarded(t, m, single))
		return
	}
	settled := 0
	if err := guardedBatch(t, Batch{msgs: []*Msg{m}, settled: &settled}); settled == 0 {
		endDelivery(m.id, err)
	}
}

// runBatch handles a batch.
func runBatch(batch, first, count uint32) {
	t := &taskContext{id: batch}
	defer t.over()
	settled := 0
	msgs, err := readDeliveries(first, count)
	if err == nil {
		err = guardedBatch(t, Batch{msgs: msgs, settled: &settled})
	}
	if err != nil || settled < len(msgs) {
		endDelivery(batch, err)
	}
}

// endDelivery settles a delivery or a batch by what its handler returned. A
// refusal has nobody to go to: the host fails what is left without a word.
func endDelivery(id uint32, err error) {
	d, delay, reason := DispositionOf(err)
	hostDeliveryEnd(id, uint32(d), delay.Milliseconds(), reason)
}

func guardedBatch(ctx context.Context, b Batch) error {
	if handler == nil {
		return &HostError{Errno: ErrInvalid, Text: "the function registered no handler: call sdk.Handle in init"}
	}
	return guarded(ctx, nil, func(ctx context.Context, _ *Msg) error { return handler(ctx, b) })
}
