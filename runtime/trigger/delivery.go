package trigger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/runtime"
)

// errLeaseLost says that another host may have the message by now.
var errLeaseLost = errors.New("the lease was lost: the host could not extend it for longer than ack_wait")

// delivery is one attempt at one message of a stream.
type delivery struct {
	consumer *Consumer
	msg      *nats.Msg
	message  host.Message
	record   *runtime.Record // once it was asked for; by one goroutine at a time

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

// Record implements runtime.Delivery.
func (d *delivery) Record(ctx context.Context) (runtime.Record, error) {
	if d.record != nil {
		return *d.record, nil
	}
	r, err := d.consumer.config.Attempts.get(ctx, d.consumer.config.Function, &d.message)
	if err == nil && (d.message.NumDelivered > 1 || r != (runtime.Record{})) {
		kept := r // else each r would be allocated
		d.record = &kept
	}
	return r, err
}

// company is how many messages may share an invocation with this one, of most.
func (d *delivery) company(ctx context.Context, most int) int {
	if most == 1 {
		return 1
	}
	r, err := d.Record(ctx)
	if err == nil && r.Suspect() {
		return 1
	}
	return max(1, most>>min(max(int(d.message.NumDelivered)-1, r.Starts), 16))
}

// crashPoint is a place where a test may have the host die, at this delivery.
func (d *delivery) crashPoint(name string) {
	if host.CrashPoints {
		host.CrashPoint(name, d.message.Consumer+"/"+d.message.Subject)
	}
}

// reply tells the stream of the delivery, by the words of its protocol.
func (d *delivery) reply(words string) error {
	return d.consumer.config.JS.Conn().Publish(d.msg.Reply, []byte(words))
}

func (d *delivery) connected() bool { return d.consumer.config.JS.Conn().IsConnected() }

// settle ends the delivery, unless its lease was lost: then what is said of it
// would be taken for the word about the delivery that another host has.
func (d *delivery) settle(words string) error {
	if !d.consumer.leases.release(d) || !d.consumer.config.Sole.Held() {
		return errLeaseLost
	}
	return d.reply(words)
}

// Ack implements runtime.Delivery.
func (d *delivery) Ack(context.Context, *host.Response) error {
	d.crashPoint("before ack")
	if err := d.settle("+ACK"); err != nil {
		return fmt.Errorf("ack: %w", err)
	}
	d.crashPoint("after ack")
	d.consumer.config.Attempts.clear(d.consumer.config.Function, &d.message)
	return nil
}

// Retry implements runtime.Delivery. The delay is always said: a plain nak
// comes back at once and ignores every schedule.
func (d *delivery) Retry(ctx context.Context, v runtime.Verdict) error {
	var err error
	if v.Charged {
		key := recordKey(d.consumer.config.Function, &d.message)
		d.crashPoint("before charge")
		err = d.consumer.config.Attempts.put(ctx, key, v.Record, d.consumer.replicas)
	}
	if !v.Charged && d.record != nil && d.record.Starts > 0 { // its handler has ended: nothing is known against it
		r := *d.record
		r.Starts, r.Alone = 0, 0
		err = d.consumer.config.Attempts.put(context.WithoutCancel(ctx), recordKey(d.consumer.config.Function, &d.message), r, d.consumer.replicas)
	}
	d.crashPoint("before nak")
	if err := errors.Join(err, d.settle(nakAfter(v.Delay))); err != nil {
		return fmt.Errorf("nak: %w", err)
	}
	return nil
}

// nakAfter asks for the message again after a delay.
func nakAfter(delay time.Duration) string {
	return `-NAK {"delay": ` + strconv.FormatInt(int64(max(delay, time.Millisecond)), 10) + `}`
}

// DeadLetter implements runtime.Delivery.
func (d *delivery) DeadLetter(ctx context.Context, v runtime.Verdict) (*host.Outgoing, error) {
	return d.consumer.config.DeadLetters.make(ctx, &d.message, v, d.consumer.replicas)
}

// GiveUp implements runtime.Delivery: the dead letter is stored and
// acknowledged before the message is ended.
func (d *delivery) GiveUp(ctx context.Context, v runtime.Verdict, letter *host.Outgoing) error {
	if d.consumer.leases.lost(d) || !d.consumer.config.Sole.Held() {
		return fmt.Errorf("term: %w", errLeaseLost)
	}
	if letter != nil {
		d.crashPoint("before letter")
		if err := d.consumer.config.DeadLetters.store(ctx, letter); err != nil {
			return err
		}
	}
	d.crashPoint("before term")
	if err := d.settle("+TERM " + v.Reason); err != nil {
		return fmt.Errorf("term: %w", err)
	}
	d.crashPoint("after term")
	d.consumer.config.Attempts.clear(d.consumer.config.Function, &d.message)
	return nil
}
