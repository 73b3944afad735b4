// Package program makes random programs of goroutines, channels, timers and
// operations whose outcome does not depend on how they are scheduled. The same
// ones run natively and in a guest, to show that a guest is a Go program like any
// other.
package program

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"sync"
	"time"
)

// Operation takes d, unless ctx ends before, and answers with a number made of v:
// see Answer.
type Operation func(ctx context.Context, d time.Duration, v int) (int, error)

// Answer is what an operation makes of a number.
func Answer(v int) int { return v*31 + 7 }

// never is longer than any program runs.
const never = time.Hour

// Run runs the program of a seed and returns its outcome.
func Run(ctx context.Context, seed uint64, op Operation) string {
	r := &run{op: op, random: rand.New(rand.NewPCG(seed, 1))}
	return r.make(3)(ctx)
}

// run makes the parts of a program. All that is random is chosen here, before
// anything runs.
type run struct {
	op     Operation
	random *rand.Rand
}

// part is a piece of a program with its outcome.
type part func(ctx context.Context) string

func (r *run) n(most int) int        { return r.random.IntN(most) }
func (r *run) moment() time.Duration { return time.Duration(r.n(3000)) * time.Microsecond }
func (r *run) parts(depth int) []part {
	parts := make([]part, 1+r.n(4))
	for i := range parts {
		parts[i] = r.make(depth - 1)
	}
	return parts
}

func (r *run) make(depth int) part {
	leaves := []func() part{r.operate, r.sleep, r.compute, r.cancelled, r.inTime, r.ticker, r.afterFunc, r.panics}
	if depth == 0 {
		return leaves[r.n(len(leaves))]()
	}
	inner := []func(int) part{r.sequence, r.parallel, r.parallel, r.pipeline, r.first, r.locked, r.once}
	return inner[r.n(len(inner))](depth)
}

func (r *run) operate() part {
	d, v := r.moment(), r.n(1000)
	return func(ctx context.Context) string {
		got, err := r.op(ctx, d, v)
		return fmt.Sprint("op ", got, err)
	}
}

func (r *run) sleep() part {
	d := r.moment()
	return func(context.Context) string {
		start := time.Now()
		time.Sleep(d)
		return fmt.Sprint("slept ", time.Since(start) >= d)
	}
}

func (r *run) compute() part {
	n := r.n(2000)
	return func(context.Context) string {
		sum := 0
		for i := range n {
			sum = sum*33 + i
		}
		return fmt.Sprint("sum ", sum)
	}
}

// cancelled waits for an operation that never ends until its context does.
func (r *run) cancelled() part {
	d, v := r.moment(), r.n(1000)
	return func(ctx context.Context) string {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		_, err := r.op(ctx, never, v)
		return fmt.Sprint("cancelled ", err != nil, errors.Is(ctx.Err(), context.DeadlineExceeded))
	}
}

// inTime waits for an operation under a deadline that does not pass.
func (r *run) inTime() part {
	d, v := r.moment(), r.n(1000)
	return func(ctx context.Context) string {
		ctx, cancel := context.WithTimeout(ctx, never)
		defer cancel()
		got, err := r.op(ctx, d, v)
		return fmt.Sprint("in time ", got, err, ctx.Err())
	}
}

func (r *run) ticker() part {
	n := 1 + r.n(4)
	return func(ctx context.Context) string {
		t := time.NewTicker(500 * time.Microsecond)
		defer t.Stop()
		for range n {
			<-t.C
		}
		return fmt.Sprint("ticks ", n)
	}
}

func (r *run) afterFunc() part {
	d := r.moment()
	return func(context.Context) string {
		done := make(chan int)
		time.AfterFunc(d, func() { done <- 1 })
		stopped := time.AfterFunc(never, func() { panic("it was stopped") })
		return fmt.Sprint("after ", <-done, stopped.Stop())
	}
}

func (r *run) panics() part {
	v := r.n(100)
	return func(context.Context) (outcome string) {
		defer func() { outcome = fmt.Sprint("recovered ", recover()) }()
		panic(v)
	}
}

func (r *run) sequence(depth int) part {
	parts := r.parts(depth)
	return func(ctx context.Context) string {
		var all []string
		for _, p := range parts {
			all = append(all, p(ctx))
		}
		return "seq(" + strings.Join(all, ",") + ")"
	}
}

func (r *run) parallel(depth int) part {
	parts := r.parts(depth)
	return func(ctx context.Context) string {
		all := make([]string, len(parts))
		var group sync.WaitGroup
		for i, p := range parts {
			group.Go(func() { all[i] = p(ctx) })
		}
		group.Wait()
		return "par(" + strings.Join(all, ",") + ")"
	}
}

// pipeline sends numbers through stages, each a goroutine of its own.
func (r *run) pipeline(depth int) part {
	stages, room, count, body := 1+r.n(4), r.n(3), r.n(8), r.make(depth-1)
	return func(ctx context.Context) string {
		in := make(chan int, room)
		out := in
		for range stages {
			from, to := out, make(chan int, room)
			go func() {
				defer close(to)
				for v := range from {
					to <- v + 1
				}
			}()
			out = to
		}
		go func() {
			defer close(in)
			for i := range count {
				in <- i
			}
		}()
		sum := 0
		for v := range out {
			sum += v
		}
		return fmt.Sprint("pipe ", sum, body(ctx))
	}
}

// first takes the first of two, of which one never comes.
func (r *run) first(depth int) part {
	body, v := r.make(depth-1), r.n(1000)
	return func(ctx context.Context) string {
		ctx, cancel := context.WithCancel(ctx)
		never1 := make(chan string)
		go func() {
			r.op(ctx, never, v)
			close(never1)
		}()
		came := make(chan string, 1)
		go func() { came <- body(ctx) }()
		timeout := time.NewTimer(never)
		defer timeout.Stop()
		outcome := "none"
		select {
		case outcome = <-came:
		case <-timeout.C:
		}
		cancel()
		<-never1
		return "first " + outcome
	}
}

// locked has parts add to what a mutex guards, and a condition wait for all.
func (r *run) locked(depth int) part {
	parts := r.parts(depth)
	return func(ctx context.Context) string {
		var mu sync.Mutex
		all := sync.NewCond(&mu)
		var outcomes []string
		for _, p := range parts {
			go func() {
				o := p(ctx)
				mu.Lock()
				defer mu.Unlock()
				outcomes = append(outcomes, o)
				all.Signal()
			}()
		}
		mu.Lock()
		defer mu.Unlock()
		for len(outcomes) < len(parts) {
			all.Wait()
		}
		sort.Strings(outcomes)
		return "lock(" + strings.Join(outcomes, ",") + ")"
	}
}

// once has several wait for one that does the work.
func (r *run) once(depth int) part {
	body, n := r.make(depth-1), 1+r.n(5)
	return func(ctx context.Context) string {
		var once sync.Once
		var outcome string
		var group sync.WaitGroup
		for range n {
			group.Go(func() { once.Do(func() { outcome = body(ctx) }) })
		}
		group.Wait()
		return "once " + outcome
	}
}
