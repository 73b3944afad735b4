package runtime

import (
	"context"
	"errors"
	"fmt"
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
	letterTimeout = 5 * time.Second        // for what a dead letter needs before the commit
	sendAgain     = time.Second            // the delay of what waits for the outbox
)

// attempt is one run of the handler and what follows from it. It is used again.
type attempt struct {
	call     *host.Call
	verdicts []Verdict // of the call's deliveries
	done     []*host.Message
	send     []*host.Outgoing
	known    []Delivery // that were done before
}

func (a *attempt) reset() {
	a.verdicts = a.verdicts[:0]
	clear(a.done)
	clear(a.send)
	clear(a.known)
	a.done, a.send, a.known = a.done[:0], a.send[:0], a.known[:0]
}

// Dispatch takes a batch from arrival to settlement: it runs the handler, makes
// its effects durable and settles each delivery. Triggers call it, at most
// concurrency times at once. ctx ends when the host cannot wait any longer. The
// batch is reordered.
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
	a := f.attempts.Get().(*attempt)
	defer f.attempts.Put(a)
	batch, err := f.try(ctx, a, batch)
	if err == nil {
		return
	}
	f.log.Warn().Err(err).Int("batch", len(batch)).Msg("an invocation was taken down; its messages run again in smaller batches")
	if open := a.call.Open(); open >= 0 && open < len(batch) {
		culprit := batch[open]
		copy(batch[open:], batch[open+1:])
		batch[len(batch)-1] = culprit
		f.process(ctx, batch[len(batch)-1:])
		batch = batch[:len(batch)-1]
	}
	middle := (len(batch) + 1) / 2
	f.process(ctx, batch[:middle])
	if middle < len(batch) {
		f.process(ctx, batch[middle:])
	}
}

// try runs a batch once and settles it. An error says that its invocation was
// taken down and that the rest of the batch has to run again.
func (f *Function) try(ctx context.Context, a *attempt, batch []Delivery) (rest []Delivery, err error) {
	batch, err = f.invoke(ctx, a, batch, 0)
	for crowded := (*host.Crowded)(nil); ctx.Err() == nil && errors.As(err, &crowded); {
		batch, err = f.invoke(ctx, a, batch, crowded.Company)
	}
	if err != nil && len(batch) > 1 && ctx.Err() == nil {
		f.settleKnown(ctx, a)
		return batch, err
	}
	if err != nil {
		a.call.FailAll(err, true)
		f.judge(ctx, a, batch)
		if err := f.makeDurable(ctx, a, batch); err != nil { // it is of the host's doing
			a.postpone(err, f.later(ctx))
		}
	}
	f.settleKnown(ctx, a)
	for i, d := range batch {
		f.settle(ctx, d, &a.call.Deliveries()[i], &a.verdicts[i])
	}
	return nil, nil
}

// invoke runs the handler once, decides what becomes of each delivery, and makes
// the effects durable. An error says that the invocation was taken down; then the
// call's open delivery is the one that it was at. What the inbox knows is taken
// out of the batch.
func (f *Function) invoke(ctx context.Context, a *attempt, batch []Delivery, company int) ([]Delivery, error) {
	a.reset()
	call := a.call
	call.Reset(ctx, f.Manifest.Name, f.grants, f.limits, f.guest, len(batch))
	for i, d := range batch {
		call.Deliveries()[i].Message = d.Message()
	}
	defer call.Close()
	call.Company = company
	call.SetTimeout(f.Manifest.Timeout.Std(), errTimeout)
	batch, err := f.open(a, batch)
	switch {
	case err != nil:
		call.FailAll(err, false)
	case len(batch) == 0:
		return nil, nil
	default:
		if err := f.run(ctx, a, batch); err != nil {
			return batch, err
		}
	}
	f.judge(ctx, a, batch)
	host.CrashPoint("judged", "")
	if err = f.makeDurable(ctx, a, batch); errors.Is(err, host.Conflict) { // a constraint that is looked at last
		call.CloseOpen()
		return batch, err
	}
	if err != nil {
		a.postpone(err, f.later(ctx))
	}
	return batch, nil
}

// later is after how long what the host could not do is tried again: at once by
// another one, when this one stops.
func (f *Function) later(ctx context.Context) time.Duration {
	if ctx.Err() != nil {
		return giveBack
	}
	return f.policy.last()
}

// open opens the transaction, and takes out of the batch what is done already.
func (f *Function) open(a *attempt, batch []Delivery) ([]Delivery, error) {
	known, err := a.call.Start()
	if errors.Is(err, host.ErrWentBack) {
		f.troubles.set(paused, err.Error())
	}
	host.CrashPoint("inbox checked", "")
	if known == nil || err != nil {
		return batch, err
	}
	host.CrashPoint("known", "")
	a.call.Drop(known)
	fresh := batch[:0]
	for i, d := range batch {
		if known[i] {
			a.known = append(a.known, d)
		} else {
			fresh = append(fresh, d)
		}
	}
	return fresh, nil
}

// run runs the handler. An error says that the invocation was taken down.
func (f *Function) run(ctx context.Context, a *attempt, batch []Delivery) error {
	if r, yes := condemned(ctx, batch); yes {
		a.call.Deliveries()[0].Outcome = host.Outcome{Disposition: host.Term, Reason: r.condemnation().Error()}
		return nil
	}
	if host.CrashPoints {
		for _, d := range batch {
			host.CrashPoint("handler", d.Message().Consumer+"/"+d.Message().Subject)
		}
	}
	start := time.Now()
	err := f.invoker.Invoke(a.call)
	f.Stats.invoked(time.Since(start), a.call.Usage)
	host.CrashPoint("handled", "")
	if err == nil && !a.call.Lost() {
		err = a.call.Finish()
	}
	if a.call.Lost() { // whatever the handler made of that
		return errors.Join(err, host.ErrTxLost)
	}
	return err
}

// condemned reports whether a message must not be handled any more, since its
// handler has ended the host too often. Such a one comes alone.
func condemned(ctx context.Context, batch []Delivery) (Record, bool) {
	if len(batch) != 1 || batch[0].Message().Stream == "" {
		return Record{}, false
	}
	r, err := batch[0].Record(ctx)
	return r, err == nil && r.Condemned()
}

// judge decides what becomes of each delivery of a call.
func (f *Function) judge(ctx context.Context, a *attempt, batch []Delivery) {
	a.verdicts = a.verdicts[:0]
	for i, d := range batch {
		made := &a.call.Deliveries()[i]
		if made.Outcome.Disposition == host.Ack {
			a.verdicts = append(a.verdicts, Verdict{Action: Ack})
			if f.breaker.succeed(d.Message()) {
				f.log.Info().Msg("a message succeeded; the function goes on as before")
			}
			continue
		}
		a.verdicts = append(a.verdicts, f.verdict(ctx, d, made.Outcome))
	}
}

// verdict decides about a delivery that was not acked.
func (f *Function) verdict(ctx context.Context, d Delivery, o host.Outcome) Verdict {
	if ctx.Err() != nil {
		// The host ended it, not the handler, which may have given up for that
		// alone: it goes to another one at once.
		return Verdict{Action: Retry, Delay: giveBack, Error: o.Reason}
	}
	m, now := d.Message(), time.Now()
	r, err := d.Record(ctx)
	step := r.Attempts + 1
	if err != nil && o.Disposition != host.Term {
		// Without the count of attempts none can be used up.
		o.Blameless, o.Reason = true, fmt.Sprintf("%s (%v)", o.Reason, err)
	}
	if o.Blameless {
		step = int(m.NumDelivered)
	}
	if o.Disposition == host.Term {
		if !r.Condemned() {
			f.breaker.settled(m)
		}
	} else if f.breaker.fail(m, o.Reason, now) {
		o.Blameless, step = true, len(f.policy.Backoff)
	}
	v := f.policy.Dispose(r, step, now.Sub(m.Timestamp), o, rand.Float64())
	if r.Condemned() && v.Reason == ReasonTerm {
		v.Reason = ReasonCrash
	}
	v.Record = r.failed(now, o.Reason, v.Charged || v.Action == GiveUp)
	return v
}

// postpone has all deliveries come again for an error of the host's.
func (a *attempt) postpone(err error, delay time.Duration) {
	for i := range a.verdicts {
		a.verdicts[i] = Verdict{Action: Retry, Delay: delay, Error: err.Error()}
	}
}

// settle tells the stream what became of one delivery.
func (f *Function) settle(ctx context.Context, d Delivery, made *host.Delivery, v *Verdict) {
	m := d.Message()
	var err error
	switch v.Action {
	case Ack:
		err = d.Ack(ctx, made.Response)
	case Retry:
		err = d.Retry(ctx, *v)
	case GiveUp:
		err = f.giveUp(ctx, d, v)
	}
	f.Stats.settled(m, *v, time.Since(m.Timestamp), err)
	if v.Action == Ack && err == nil {
		return
	}
	event := f.log.Warn().Str("subject", m.Subject).Uint64("sequence", m.StreamSeq).Int("attempt", v.Record.Attempts)
	if err != nil {
		event.Err(err).Msg("a delivery could not be settled; it comes again")
		return
	}
	event.Str("error", v.Error).Dur("delay", v.Delay).Str("reason", v.Reason).Msg(v.Action.String())
}

// makeDurable commits what the handler did, together with which messages are done
// and what is to be sent: what it published, and dead letters. Then it sends that.
// Functions without a transaction have published already, and have their dead
// letters stored one by one.
func (f *Function) makeDurable(ctx context.Context, a *attempt, batch []Delivery) error {
	if f.outbox == nil {
		return nil
	}
	ctx, cancel := linger(ctx) // what is finished is kept, also when the host cannot wait
	defer cancel()
	a.done, a.send = a.done[:0], a.call.Publishes(a.send[:0])
	var failed error
	for i, d := range batch {
		v := &a.verdicts[i]
		if v.Action == GiveUp {
			failed = f.takeLetter(ctx, a, d, v, failed)
		}
		if v.Action != Retry {
			a.done = append(a.done, d.Message())
		}
	}
	if err := a.call.Commit(ctx, a.done, a.send); err != nil || len(a.send) == 0 {
		return err
	}
	if err := f.outbox.flush(ctx); err != nil {
		for i := range a.verdicts {
			// It is done, and known when it comes again; a request does not come again.
			if v := &a.verdicts[i]; v.Action != Retry && batch[i].Message().Stream != "" {
				*v = Verdict{Action: Retry, Delay: sendAgain, Error: err.Error()}
			}
		}
	}
	return nil
}

// takeLetter puts the dead letter of a message among what is sent after the
// commit. If it cannot be made, the message is kept, and so are the others of the
// batch: the database must not wait for each of them. It returns why.
func (f *Function) takeLetter(ctx context.Context, a *attempt, d Delivery, v *Verdict, failed error) error {
	ctx, cancel := context.WithTimeout(ctx, letterTimeout)
	defer cancel()
	letter, err := (*host.Outgoing)(nil), failed
	if failed == nil {
		letter, err = f.letter(ctx, d, v)
	}
	if err != nil {
		text := err.Error()
		switch {
		case errors.Is(err, ErrAgain):
			text = v.Error
		case !errors.Is(err, ErrLoop):
			failed = err
		}
		*v = Verdict{Action: Retry, Delay: f.policy.last(), Error: text}
		return failed
	}
	f.troubles.clear(letters)
	if letter != nil {
		a.send = append(a.send, letter)
		v.Kept = true
	}
	return nil
}

// letter makes the dead letter of a message. Errors show in the function's state
// until one can be made again.
func (f *Function) letter(ctx context.Context, d Delivery, v *Verdict) (*host.Outgoing, error) {
	letter, err := d.DeadLetter(ctx, *v)
	switch {
	case errors.Is(err, ErrAgain):
		// Then nothing is wrong, and it is not given up on.
	case errors.Is(err, ErrLoop):
		f.troubles.set(paused, err.Error())
	case err != nil:
		f.troubles.notStored(err)
	}
	return letter, err
}

// giveUp ends a message, with its dead letter stored before. If that is not
// possible the message is kept: it comes again slowly, until it is.
func (f *Function) giveUp(ctx context.Context, d Delivery, v *Verdict) error {
	ctx, cancel := linger(ctx)
	defer cancel()
	var letter *host.Outgoing
	var err error
	if f.outbox == nil { // otherwise it is sent already
		if letter, err = f.letter(ctx, d, v); err == nil && letter != nil {
			v.Kept = true
		}
	}
	if err == nil {
		if err = d.GiveUp(ctx, *v, letter); err == nil {
			f.troubles.clear(letters)
			return nil
		}
		if errors.Is(err, ErrNotStored) {
			f.troubles.notStored(err)
		}
	}
	if errors.Is(err, ErrAgain) {
		err = nil
	}
	return errors.Join(err, d.Retry(ctx, Verdict{Action: Retry, Delay: f.policy.last(), Error: v.Error}))
}

// settleKnown acks what was done before, once all that it published is stored.
func (f *Function) settleKnown(ctx context.Context, a *attempt) {
	if len(a.known) == 0 {
		return
	}
	v := Verdict{Action: Ack}
	after, cancel := linger(ctx)
	defer cancel()
	if err := f.outbox.flush(after); err != nil {
		v = Verdict{Action: Retry, Delay: sendAgain, Error: err.Error()}
	}
	for _, d := range a.known {
		f.settle(ctx, d, &host.Delivery{}, &v)
	}
	a.known = a.known[:0]
}
