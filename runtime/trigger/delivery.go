package trigger

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/runtime"
)

// delivery is one attempt at one message of a stream.
type delivery struct {
	consumer *Consumer
	msg      *nats.Msg
	message  *host.Message

	next, prev *delivery // in the lease set; guarded by its lock
	extended   time.Time
}

var _ runtime.Delivery = (*delivery)(nil)

func newDelivery(c *Consumer, msg *nats.Msg, created time.Time) (*delivery, error) {
	md, err := msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("read metadata of a message: %w", err)
	}
	return &delivery{consumer: c, msg: msg, message: &host.Message{
		Trigger: c.config.Trigger.Name, Subject: msg.Subject, Headers: msg.Header, Data: msg.Data,
		Stream: md.Stream, StreamCreated: created, Consumer: md.Consumer,
		StreamSeq: md.Sequence.Stream, ConsumerSeq: md.Sequence.Consumer,
		NumDelivered: md.NumDelivered, NumPending: md.NumPending, Timestamp: md.Timestamp,
	}}, nil
}

// Message implements runtime.Delivery.
func (d *delivery) Message() *host.Message { return d.message }

// Attempt implements runtime.Delivery. Deliveries stand for attempts: a host
// that died with the message counts as one.
func (d *delivery) Attempt() int { return int(d.message.NumDelivered) }

// reply tells the stream of the delivery, by the words of its protocol.
func (d *delivery) reply(words string) error {
	return d.consumer.config.JS.Conn().Publish(d.msg.Reply, []byte(words))
}

// Ack implements runtime.Delivery.
func (d *delivery) Ack(context.Context, *host.Response) error {
	d.consumer.leases.release(d)
	if err := d.reply("+ACK"); err != nil {
		return fmt.Errorf("ack: %w", err)
	}
	return nil
}

// Retry implements runtime.Delivery. The delay is always said: a plain nak
// comes back at once and ignores every schedule.
func (d *delivery) Retry(_ context.Context, delay time.Duration, _ string) error {
	d.consumer.leases.release(d)
	if err := d.reply(nakAfter(delay)); err != nil {
		return fmt.Errorf("nak: %w", err)
	}
	return nil
}

// nakAfter asks for the message again after a delay.
func nakAfter(delay time.Duration) string {
	return `-NAK {"delay": ` + strconv.FormatInt(int64(max(delay, time.Millisecond)), 10) + `}`
}

// GiveUp implements runtime.Delivery: the dead letter is stored and
// acknowledged before the message is ended.
func (d *delivery) GiveUp(ctx context.Context, v runtime.Verdict) error {
	if err := d.consumer.config.DeadLetters.store(ctx, d.message, v); err != nil {
		return err
	}
	d.consumer.leases.release(d)
	if err := d.reply("+TERM " + v.Reason); err != nil {
		return fmt.Errorf("term: %w", err)
	}
	return nil
}
