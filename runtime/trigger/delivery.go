package trigger

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/runtime"
)

// delivery is one attempt at one message of a stream.
type delivery struct {
	consumer *Consumer
	msg      *nats.Msg
	message  host.Message

	next, prev *delivery // in the lease set; guarded by its lock
	extended   time.Time
}

var _ runtime.Delivery = (*delivery)(nil)

func newDelivery(c *Consumer, msg *nats.Msg, created time.Time) (*delivery, error) {
	d := &delivery{consumer: c, msg: msg, message: host.Message{
		Trigger: c.config.Trigger.Name, Subject: msg.Subject, Headers: msg.Header, Data: msg.Data,
		Stream: c.config.Trigger.Stream, StreamCreated: created, Consumer: c.config.Trigger.DurableName,
	}}
	if !readAckSubject(msg.Reply, &d.message) {
		return nil, fmt.Errorf("read where a message comes from: %q is not an ack subject", msg.Reply)
	}
	return d, nil
}

// readAckSubject reads the numbers at the end of an ack subject, which are the
// same in both of its forms: <delivered>.<stream seq>.<consumer seq>.<timestamp>.<pending>
// (nats-server, consumer.go), with a random token behind in the newer one.
func readAckSubject(s string, m *host.Message) bool {
	dots := strings.Count(s, ".")
	if !strings.HasPrefix(s, "$JS.ACK.") || dots < 8 {
		return false
	}
	skip := 4 // $JS.ACK.<stream>.<consumer>
	if dots >= 10 {
		skip = 6 // $JS.ACK.<domain>.<account>.<stream>.<consumer>
	}
	for range skip {
		_, s, _ = strings.Cut(s, ".")
	}
	var n [5]uint64
	for i := range n {
		var token string
		token, s, _ = strings.Cut(s, ".")
		v, err := strconv.ParseUint(token, 10, 64)
		if err != nil {
			return false
		}
		n[i] = v
	}
	m.NumDelivered, m.StreamSeq, m.ConsumerSeq, m.NumPending = n[0], n[1], n[2], n[4]
	m.Timestamp = time.Unix(0, int64(n[3]))
	return true
}

// Message implements runtime.Delivery.
func (d *delivery) Message() *host.Message { return &d.message }

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
	if err := d.consumer.config.DeadLetters.store(ctx, &d.message, v); err != nil {
		return err
	}
	d.consumer.leases.release(d)
	if err := d.reply("+TERM " + v.Reason); err != nil {
		return fmt.Errorf("term: %w", err)
	}
	return nil
}
