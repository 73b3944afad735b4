package trigger

import (
	"context"
	"fmt"
	"time"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime"
)

// RedriveTo hands the message of a dead letter to one function alone, without
// publishing it, and removes the letter when it is acked. The message keeps its
// identity, in an epoch of the dead letter: what keeps an inbox handles it once.
// The error is the handler's when it fails again.
func (l *Letters) RedriveTo(ctx context.Context, sequence uint64, again bool, m *manifests.Manifest, f Dispatcher, quiet *Quiet) error {
	return l.once(ctx, sequence, again, func(full *Full) error {
		if full.Function != m.Name {
			return fmt.Errorf("it is a dead letter of function %s, not of %s", full.Function, m.Name)
		}
		d := &redriven{message: host.Message{
			Trigger: triggerOf(m, full.Consumer), Subject: full.Subject, Headers: full.Headers, Data: full.Data,
			Stream: full.Stream, StreamCreated: time.Unix(0, 0), Epoch: l.redriveKey(sequence),
			Consumer: full.Consumer, StreamSeq: full.StreamSeq, NumDelivered: 1, Timestamp: full.Time,
		}, outcome: fmt.Errorf("the host stopped before it was handled")}
		quiet.enter(false)
		defer quiet.leave(false)
		f.Dispatch(ctx, []runtime.Delivery{d})
		return d.outcome
	})
}

// triggerOf is the name of the trigger that a durable is of.
func triggerOf(m *manifests.Manifest, durable string) string {
	for _, t := range m.Triggers {
		if t.DurableName == durable {
			return t.Name
		}
	}
	return m.Triggers[0].Name
}

// redriven is a dead letter's message as a delivery. It has one attempt: whoever
// redrives it decides about another.
type redriven struct {
	message host.Message
	outcome error
}

var _ runtime.Delivery = (*redriven)(nil)

// Message implements runtime.Delivery.
func (d *redriven) Message() *host.Message { return &d.message }

// Record implements runtime.Delivery.
func (d *redriven) Record(context.Context) (runtime.Record, error) { return runtime.Record{}, nil }

// Ack implements runtime.Delivery.
func (d *redriven) Ack(context.Context, *host.Response) error {
	d.outcome = nil
	return nil
}

// Retry implements runtime.Delivery.
func (d *redriven) Retry(_ context.Context, v runtime.Verdict) error {
	d.outcome = fmt.Errorf("it failed again: %s", v.Error)
	return nil
}

// DeadLetter implements runtime.Delivery: there is one already.
func (d *redriven) DeadLetter(context.Context, runtime.Verdict) (*host.Outgoing, error) {
	return nil, runtime.ErrAgain
}

// GiveUp implements runtime.Delivery.
func (d *redriven) GiveUp(_ context.Context, v runtime.Verdict, _ *host.Outgoing) error {
	d.outcome = fmt.Errorf("it failed again: %s", v.Error)
	return nil
}
