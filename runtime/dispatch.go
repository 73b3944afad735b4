package runtime

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/pelton-run/pelton/host"
)

// errTimeout is the cause of an invocation's ended context.
var errTimeout = errors.New("the manifest's timeout has passed")

// What follows a handler (the publishes after its commit, dead letters) may take
// settleTimeout for a batch, and lingerTimeout once the host cannot wait any
// longer. What does not get done is done again by a redelivery.
const (
	settleTimeout = 30 * time.Second
	lingerTimeout = 3 * time.Second
	giveBack      = 100 * time.Millisecond // the delay of what a stopping host gives back
)

// Dispatch takes a batch from arrival to settlement: it runs the handler, makes
// its effects durable and settles each delivery. Triggers call it, at most
// concurrency times at once. ctx ends when the host cannot wait any longer.
func (f *Function) Dispatch(ctx context.Context, batch []Delivery) {
	f.Stats.arrive(batch)
	f.process(ctx, batch)
}

// linger returns the context of what follows a handler.
func linger(ctx context.Context) (context.Context, context.CancelFunc) {
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(lingerTimeout, cancel)
		context.AfterFunc(after, func() { timer.Stop() })
	})
	return after, func() { stop(); cancel() }
}

// process runs a batch. When an invocation is taken down, nothing of it is
// settled: the delivery that was open runs alone next, the others again in
// halves, so that only one that fails alone is charged.
func (f *Function) process(ctx context.Context, batch []Delivery) {
	call := f.calls.Get().(*host.Call)
	defer f.calls.Put(call)
	err := f.invoke(ctx, call, batch, 0)
	for crowded := (*host.Crowded)(nil); ctx.Err() == nil && errors.As(err, &crowded); {
		err = f.invoke(ctx, call, batch, crowded.Company)
	}
	if err == nil {
		f.settleAll(ctx, batch, call.Deliveries())
		return
	}
	if len(batch) == 1 || ctx.Err() != nil {
		f.settleAll(ctx, batch, failAll(batch, err))
		return
	}
	f.log.Warn().Err(err).Int("batch", len(batch)).Msg("an invocation was taken down; its messages run again in smaller batches")
	if open := call.Open(); open >= 0 && open < len(batch) {
		f.process(ctx, batch[open:open+1])
		rest := append(append([]Delivery{}, batch[:open]...), batch[open+1:]...)
		f.halves(ctx, rest)
		return
	}
	f.halves(ctx, batch)
}

func (f *Function) halves(ctx context.Context, batch []Delivery) {
	middle := (len(batch) + 1) / 2
	f.process(ctx, batch[:middle])
	if middle < len(batch) {
		f.process(ctx, batch[middle:])
	}
}

// invoke runs the handler once and makes its effects durable: commit first,
// then the publishes that waited for it. An error says that the invocation was
// taken down; then the call's open delivery is the one that it was at.
func (f *Function) invoke(ctx context.Context, call *host.Call, batch []Delivery, company int) error {
	call.Reset(ctx, f.Manifest.Name, f.grants, f.limits, f.guest, len(batch))
	for i, d := range batch {
		call.Deliveries()[i].Message = d.Message()
	}
	defer call.Close()
	call.Company = company
	call.SetTimeout(f.Manifest.Timeout.Std(), errTimeout)
	if err := call.Start(); err != nil {
		call.FailAll(err)
		return nil
	}
	start := time.Now()
	err := f.invoker.Invoke(call)
	f.Stats.invoked(time.Since(start), call.Usage)
	if err != nil {
		return err
	}
	if err = call.Finish(); err == nil {
		err = f.makeDurable(ctx, call)
	}
	if errors.Is(err, host.ErrTxLost) {
		call.CloseOpen()
		return err
	}
	if err != nil {
		call.FailAll(err)
	}
	return nil
}

// makeDurable commits the transaction and sends what waited for it.
func (f *Function) makeDurable(ctx context.Context, call *host.Call) error {
	if err := call.Commit(ctx); err != nil {
		return err
	}
	pending := call.Pending()
	if len(pending) == 0 {
		return nil
	}
	ctx, cancel := linger(ctx)
	defer cancel()
	for _, m := range pending {
		if _, err := f.grants.Publish.Publish(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func failAll(batch []Delivery, err error) []host.Delivery {
	outcomes := make([]host.Delivery, len(batch))
	for i := range outcomes {
		outcomes[i].Outcome = host.Outcome{Disposition: host.Nak, Reason: err.Error()}
	}
	return outcomes
}

func (f *Function) settleAll(ctx context.Context, batch []Delivery, outcomes []host.Delivery) {
	for i, d := range batch {
		f.settle(ctx, d, &outcomes[i])
	}
}

// settle tells the stream what became of one delivery.
func (f *Function) settle(ctx context.Context, d Delivery, made *host.Delivery) {
	o := made.Outcome
	m := d.Message()
	age := time.Since(m.Timestamp)
	v := f.policy.Dispose(d.Attempt(), age, o, rand.Float64())
	if ctx.Err() != nil && o.Disposition != host.Ack {
		// The host ended it, not the handler, which may have given up for that
		// alone: it goes to another one at once.
		v = Verdict{Action: Retry, Delay: giveBack, Error: o.Reason}
	}
	var err error
	switch v.Action {
	case Ack:
		err = d.Ack(ctx, made.Response)
	case Retry:
		err = d.Retry(ctx, v.Delay, v.Error)
	case GiveUp:
		err = f.giveUp(ctx, d, v)
		v.Kept = m.Stream != "" && f.Manifest.DeadLetter.On()
	}
	f.Stats.settled(m, v, age, err)
	if v.Action == Ack && err == nil {
		return
	}
	event := f.log.Warn().Str("subject", m.Subject).Uint64("sequence", m.StreamSeq).Int("attempt", d.Attempt())
	if err != nil {
		event.Err(err).Msg("a delivery could not be settled; it comes again")
		return
	}
	event.Str("error", v.Error).Dur("delay", v.Delay).Str("reason", v.Reason).Msg(v.Action.String())
}

// giveUp stores the dead letter. If that is not possible the message is kept:
// it comes again slowly, until it is.
func (f *Function) giveUp(ctx context.Context, d Delivery, v Verdict) error {
	gctx, cancel := linger(ctx)
	defer cancel()
	err := d.GiveUp(gctx, v)
	if err == nil {
		return nil
	}
	last := f.policy.Backoff[len(f.policy.Backoff)-1]
	return errors.Join(err, d.Retry(gctx, max(last, time.Second), v.Error))
}

// String names the action for the log.
func (a Action) String() string {
	switch a {
	case Ack:
		return "acked"
	case Retry:
		return "a message failed and is retried"
	}
	return "a message was given up on"
}
