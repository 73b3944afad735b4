//go:build wasip1

package sdk

import (
	"context"
	"encoding/binary"
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// The exports, and how handlers run below them.
//
// The exported call runs handlers on its own goroutine as long as they are of the
// kind that waits for nothing; others get goroutines of their own, so that the
// call can return to the host while they wait. A goroutine that waits for the host
// is parked on a channel until the host has told that its operation is finished.

// bellFD is the file descriptor of the host's doorbell. Reading it parks the
// reading goroutine in Go's network poller, so that the scheduler itself finds out
// that nothing else can run, and tells the host in poll_oneoff when its next timer
// is due. See ABI.md, The doorbell.
const bellFD = 1 << 20

var (
	doorbell   = os.NewFile(bellFD, "doorbell")
	unfinished int     // handlers that have not returned
	watched    int     // contexts whose end somebody can see
	waiting    []*task // deliveries that no goroutine has taken yet, the last first

	books  sync.Mutex                  // of the maps: one that grows may let others run
	tasks  = map[uint32]*taskContext{} // whose contexts were looked at, by the id of the delivery or batch
	ended  = map[uint32]struct{}{}     // others whose time is over
	parked = map[int32]chan struct{}{} // by ticket
	early  = map[int32]struct{}{}      // tickets that finished before anybody waited

	resting bool               // the exported call waits until nothing can run
	idle    = make(chan int64) // tells it that, with the time until the next timer
)

func init() { go pump() }

//go:wasmexport pelton_abi_1
func abiVersion() {}

//go:wasmexport pelton_handle
func peltonHandle(batch, first, count uint32) int64 {
	runBatch(batch, first, count)
	return 0
}

//go:wasmexport pelton_start
func peltonStart(first, count uint32) int64 {
	read, err := readDeliveries(first, count)
	list := make([]*task, len(read)) // made before anybody sees it: making it may let others run
	for i := range read {
		list[len(read)-1-i] = &read[i]
	}
	waiting = list // nothing waits between two calls
	for id := first; err != nil && id < first+count; id++ {
		endDelivery(id, err)
	}
	if unfinished += len(read); unfinished == len(read) && brisk.holds() {
		runWaiting()
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
	for len(waiting) > 0 { // those that took the ones before wait for something
		employ()
		runtime.Gosched()
	}
	if unfinished == 0 {
		brisk.passed()
		return 0
	}
	brisk.failed()
	resting = true
	timer := <-idle
	ms := int64(-1)
	if timer >= 0 {
		ms = min((timer+int64(time.Millisecond)-1)/int64(time.Millisecond), 1<<31-1)
	}
	return ms<<32 | int64(unfinished)
}

// pump sleeps at the doorbell, and so wakes when no other goroutine can run. It
// has those run that the host has news for; when there is none the exported call
// returns, or, if it is itself one of those that wait, the host is waited for.
func pump() {
	var ring [8]byte
	for {
		if n, err := doorbell.Read(ring[:]); err != nil || n != len(ring) {
			panic("sdk: the host has no doorbell")
		}
		timer := int64(binary.LittleEndian.Uint64(ring[:]))
		if timer < 0 && watched > 0 {
			timer = far // the end of its time is what somebody may wait for
		}
		switch {
		case drain():
		case resting:
			resting = false
			idle <- timer
		case len(waiting) > 0: // the call's own goroutine waits for something
			brisk.failed()
			employ()
		default:
			brisk.failed()
			hostAwait(timer)
			drain()
		}
	}
}

// far is a time until a timer that is later than any handler's end.
const far = int64(30 * 24 * time.Hour)

// temper tells whether handlers are of the kind that waits for nothing: then they
// need no goroutine.
type temper struct{ streak, needed int }

var brisk = temper{needed: 64}

func (t *temper) holds() bool { return t.streak >= t.needed }
func (t *temper) passed()     { t.streak++ }

// failed has a longer streak asked for the next time.
func (t *temper) failed() {
	if t.holds() {
		t.needed = min(2*t.needed, 1<<16)
	}
	t.streak = 0
}

// drain wakes those that wait for what the host says has finished, and ends the
// contexts of deliveries whose time is over. It reports whether there was any.
func drain() (news bool) {
	for {
		var numbers [64]int32
		n := hostReady(unsafe.Pointer(&numbers), uint32(unsafe.Sizeof(numbers)))
		for _, v := range numbers[:max(n, 0)] {
			news = true
			tell(v)
		}
		if int(n) < len(numbers) {
			return news
		}
	}
}

// tell passes on one number of the host: a ticket that has finished, or below
// zero a delivery whose time is over.
func tell(v int32) {
	books.Lock()
	defer books.Unlock()
	if v < 0 {
		if t := tasks[uint32(-v)]; t != nil {
			t.end()
		} else {
			ended[uint32(-v)] = struct{}{}
		}
		return
	}
	if c := parked[v]; c != nil {
		delete(parked, v)
		close(c)
	} else {
		early[v] = struct{}{}
	}
}

// park waits until an operation has finished.
func park(ticket int32) {
	c := make(chan struct{})
	books.Lock()
	_, told := early[ticket]
	if told {
		delete(early, ticket)
	} else {
		parked[ticket] = c
	}
	books.Unlock()
	if !told {
		<-c
	}
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
	if t.done != nil {
		return t.done
	}
	t.register()
	made := make(chan struct{}) // which may let others run, and make one
	if t.done == nil {
		t.done = made
		watched++
		if t.err != nil {
			t.close()
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

func (t *taskContext) delivery() uint32 { return t.id }

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
	t.close()
}

func (t *taskContext) close() {
	if t.done != nil {
		watched--
		close(t.done)
	}
}

// register has the task told when its time is over. Most are never asked.
func (t *taskContext) register() {
	if t.known {
		return
	}
	t.known = true
	books.Lock()
	defer books.Unlock()
	tasks[t.id] = t
	if _, over := ended[t.id]; over {
		t.end()
	}
}

// over forgets a task. What it started and left behind finds its context ended.
func (t *taskContext) over() {
	unfinished--
	if t.known || len(ended) > 0 {
		books.Lock()
		delete(tasks, t.id)
		delete(ended, t.id)
		books.Unlock()
	}
	if t.err == nil {
		t.err = context.Canceled
		t.close()
	}
}

// maxIdle is how many goroutines are kept for later: a new one has its stack
// grow each time, which costs more than a short handler.
const maxIdle = 64

var (
	work    = make(chan struct{}) // wakes an idle worker
	workers int                   // that are idle
)

// employ has another goroutine handle what is waiting.
func employ() {
	if workers == 0 {
		go worker()
		return
	}
	workers--
	work <- struct{}{}
}

func worker() {
	for {
		runWaiting()
		if workers == maxIdle {
			return
		}
		workers++
		<-work
	}
}

// runWaiting handles deliveries that came by themselves, one after another as
// long as none of them waits for anything: then another goroutine goes on.
func runWaiting() {
	for len(waiting) > 0 {
		t := waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		runOne(&t.msg, &t.context)
	}
}

func runOne(m *Msg, t *taskContext) {
	defer t.over()
	hostDeliveryBegin(m.id) // so that the host knows who is at work
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
	unfinished++
	defer t.over()
	settled := 0
	read, err := readDeliveries(first, count)
	msgs := make([]*Msg, len(read))
	for i := range read {
		msgs[i] = &read[i].msg
	}
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
