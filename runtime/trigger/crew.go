package trigger

import (
	"context"
	"sync"
	"time"

	"github.com/pelton-run/pelton/runtime"
)

// crew is the goroutines that run a trigger's handlers. One waits for the next
// batch; when it has one, another takes its place at the queue, up to the
// concurrency. An idle trigger has one.
type crew struct {
	consumer *Consumer
	queue    <-chan *delivery
	turn     sync.Mutex // whoever holds it makes a batch
	group    sync.WaitGroup

	mu      sync.Mutex
	workers int
	waiting int // for the turn, or in it
}

// work runs handlers until the queue is closed, and returns when all have
// ended. After ctx has ended, what is still in the queue is given back.
func (c *Consumer) work(ctx, hard context.Context, queue <-chan *delivery) {
	w := &crew{consumer: c, queue: queue, workers: 1}
	w.group.Go(func() { w.run(ctx, hard) })
	w.group.Wait()
}

func (w *crew) run(ctx, hard context.Context) {
	batch := make([]runtime.Delivery, 0, w.consumer.config.Trigger.Batch.Max) // used again: a dispatch keeps nothing of it
	for {
		w.enter()
		w.turn.Lock()
		batch = w.next(ctx, batch[:0])
		if len(batch) > 0 && w.leave() {
			w.group.Go(func() { w.run(ctx, hard) })
		}
		w.turn.Unlock()
		if len(batch) == 0 {
			return
		}
		w.consumer.config.Dispatcher.Dispatch(hard, batch)
	}
}

func (w *crew) enter() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting++
}

// leave reports whether somebody new is needed at the queue, and counts them.
func (w *crew) leave() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting--
	if w.waiting > 0 || w.workers >= w.consumer.config.Concurrency {
		return false
	}
	w.workers++
	return true
}

// next makes a batch: the first message whenever it comes, then more until
// there are enough or the wait is over. An empty one says that there will be none.
func (w *crew) next(ctx context.Context, batch []runtime.Delivery) []runtime.Delivery {
	for d := range w.queue {
		if ctx.Err() != nil {
			w.giveBack(d)
			continue
		}
		if batch = append(batch, d); w.consumer.config.Trigger.Batch.Max == 1 {
			return batch
		}
		return w.fill(ctx, batch)
	}
	return nil
}

func (w *crew) fill(ctx context.Context, batch []runtime.Delivery) []runtime.Delivery {
	limit := w.consumer.config.Trigger.Batch
	var timer <-chan time.Time
	for len(batch) < limit.Max {
		select {
		case d, open := <-w.queue:
			if !open {
				return batch
			}
			batch = append(batch, d)
			continue
		default:
		}
		if timer == nil {
			t := time.NewTimer(limit.Wait.Std())
			defer t.Stop()
			timer = t.C
		}
		select {
		case d, open := <-w.queue:
			if !open {
				return batch
			}
			batch = append(batch, d)
		case <-timer:
			return batch
		case <-ctx.Done():
			return batch
		}
	}
	return batch
}

// giveBack lets another host have a message that was not started.
func (w *crew) giveBack(d *delivery) {
	w.consumer.leases.release(d)
	d.reply(nakAfter(giveBack)) // if it is lost, the message comes after ack_wait
}
