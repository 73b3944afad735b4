package trigger

import (
	"context"
	"sync"
	"time"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/runtime"
)

// crew is the goroutines that run a trigger's handlers. One waits for the next
// batch; when it has one, another takes its place at the queue, up to the
// concurrency. An idle trigger has one.
type crew struct {
	consumer *Consumer
	queue    <-chan *delivery
	group    sync.WaitGroup

	turn sync.Mutex // whoever holds it makes a batch
	next *delivery  // that did not fit into the last batch

	mu      sync.Mutex
	workers int
	waiting int // for the turn, or in it
}

// work runs handlers until the queue is closed, and returns when all have
// ended. After ctx has ended, what is still in the queue is given back.
func (c *Consumer) work(ctx, hard context.Context, queue <-chan *delivery) {
	w := &crew{consumer: c, queue: queue, workers: 1}
	w.group.Go(func() { w.run(ctx, hard, 0) })
	w.group.Wait()
}

// run makes batches and has them handled. number is the worker's.
func (w *crew) run(ctx, hard context.Context, number int) {
	batch := make([]runtime.Delivery, 0, w.consumer.config.Trigger.Batch.Max) // used again: a dispatch keeps nothing of it
	for {
		w.enter()
		w.turn.Lock()
		batch = batch[:0]
		d := w.first(ctx)
		if d == nil {
			w.turn.Unlock()
			return
		}
		// Only who has a message asks: the right to try one must not wait for it.
		admission, err := w.consumer.config.Dispatcher.Admit(ctx)
		if err != nil { // ctx has ended
			w.giveBack(d)
		} else {
			batch = w.fill(ctx, batch, d, admission.Limit)
		}
		if more := 0; len(batch) > 0 {
			if more = w.leave(); more > 0 {
				w.group.Go(func() { w.run(ctx, hard, more) })
			}
		}
		w.turn.Unlock()
		if len(batch) > 0 {
			w.dispatch(hard, batch, number)
		}
		if admission.Release != nil {
			admission.Release()
		}
		if len(batch) == 0 {
			w.stay()
		}
	}
}

// stay takes back that this worker waits: it enters again.
func (w *crew) stay() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting--
}

// dispatch has a batch handled, and says so where it is seen if the host dies. A
// message that may be what kills hosts is handled with nothing beside it.
func (w *crew) dispatch(ctx context.Context, batch []runtime.Delivery, number int) {
	c := w.consumer
	alone := false
	if len(batch) == 1 {
		r, err := batch[0].Record(ctx)
		alone = err == nil && r.Suspect()
	}
	c.config.Quiet.enter(alone)
	defer c.config.Quiet.leave(alone)
	c.marks.begin(number, batch, alone)
	defer c.marks.end(number)
	host.CrashPoint("marked", batch[0].Message().Subject)
	c.config.Dispatcher.Dispatch(ctx, batch)
}

func (w *crew) enter() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting++
}

// leave returns the number of somebody new who is needed at the queue, and counts
// them; 0 when nobody is.
func (w *crew) leave() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting--
	if w.waiting > 0 || w.workers >= w.consumer.config.Concurrency {
		return 0
	}
	w.workers++
	return w.workers - 1
}

// fill makes a batch: its first message, then more until there are enough or the
// wait is over. A message that has come before is in smaller company, and so are
// the others of its batch. limit, when not 0, is the most.
func (w *crew) fill(ctx context.Context, batch []runtime.Delivery, d *delivery, limit int) []runtime.Delivery {
	most := w.consumer.config.Trigger.Batch.Max
	if limit > 0 {
		most = min(most, limit)
	}
	batch = append(batch, d)
	most = min(most, d.company(ctx, most))
	if most == 1 {
		return batch
	}
	timer := time.NewTimer(w.consumer.config.Trigger.Batch.Wait.Std())
	defer timer.Stop()
	for len(batch) < most {
		d := w.more(ctx, timer.C)
		if d == nil {
			break
		}
		if most = min(most, d.company(ctx, most)); most <= len(batch) {
			w.next = d
			break
		}
		batch = append(batch, d)
	}
	return batch
}

// first waits for a message; nil when there will be none.
func (w *crew) first(ctx context.Context) *delivery {
	if d := w.next; d != nil {
		w.next = nil
		if ctx.Err() == nil {
			return d
		}
		w.giveBack(d)
	}
	for d := range w.queue {
		if ctx.Err() == nil {
			return d
		}
		w.giveBack(d)
	}
	return nil
}

// more waits for one more message; nil when the batch is not to wait any longer.
func (w *crew) more(ctx context.Context, over <-chan time.Time) *delivery {
	select {
	case d := <-w.queue: // nil once it is closed
		return d
	default:
	}
	select {
	case d := <-w.queue:
		return d
	case <-over:
		return nil
	case <-ctx.Done():
		return nil
	}
}

// giveBack lets another host have a message that was not started.
func (w *crew) giveBack(d *delivery) {
	host.CrashPoint("before give back", "")
	d.settle(nakAfter(giveBack)) // if it is lost, the message comes after ack_wait
}
