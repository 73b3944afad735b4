package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The ways in which pulling ends.
var (
	errConsumerGone = errors.New("the durable was deleted")
	errNoHeartbeat  = errors.New("no heartbeat from the server")
)

// controlRoom is how many status messages may wait beside the messages.
const controlRoom = 64

// puller asks the server for exactly as many messages as there is room for, so
// that every message that arrives is held under a lease from that moment. The
// protocol is that of $JS.API.CONSUMER.MSG.NEXT (ADR-13 and ADR-9 of
// nats-architecture-and-design).
type puller struct {
	nc        *nats.Conn
	subject   string // of pull requests
	inbox     string
	sub       *nats.Subscription
	messages  chan *nats.Msg
	running   int       // that can run at one time
	capacity  int       // of what is held: those that run and those that start soon
	requested int       // asked for and not arrived
	window    time.Time // since when released counts
	released  uint64    // of the lease set, at the window's begin
	reconnect uint64
	open      []openRequest // that make up requested, the oldest first
	quick     uint64        // messages taken, for between
	alive     bool          // whether anything came since the last look
	heard     time.Time     // when that was so last

	verify     func() error // looks after a reconnect whether the stream is the same
	unverified bool
}

// pullRequest is the body of a pull request.
type pullRequest struct {
	Batch     int           `json:"batch"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

// newPuller makes a puller for a durable. running is how many messages can run
// at one time; as many are held ahead of them, and more, up to maxAhead, as long
// as they are done that fast.
func newPuller(js jetstream.JetStream, stream, durable string, running int) (*puller, error) {
	most := running + maxAhead
	p := &puller{
		nc: js.Conn(), subject: apiPrefix(js.Options()) + "CONSUMER.MSG.NEXT." + stream + "." + durable,
		messages: make(chan *nats.Msg, most+controlRoom), running: running, capacity: 2 * min(running, most/2), heard: time.Now(), window: time.Now(),
	}
	p.reconnect = p.nc.Stats().Reconnects
	return p, p.resubscribe()
}

// resubscribe begins anew with another inbox, so that what the server still has
// of the old requests does not come on top of the new ones.
func (p *puller) resubscribe() error {
	if p.sub != nil {
		p.sub.Unsubscribe() // it fails only when the connection is closed
	}
	p.fulfil(p.requested)
	// Not NewRespInbox: what arrives below that prefix can be taken for the answer
	// to whatever request is under way.
	p.inbox = p.nc.NewInbox()
	sub, err := p.nc.ChanSubscribe(p.inbox, p.messages)
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	p.sub = sub
	return nil
}

// apiPrefix is where the server takes requests, by the connection's options.
func apiPrefix(o jetstream.JetStreamOptions) string {
	switch {
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return jetstream.DefaultAPIPrefix
}

// drainTimeout bounds the wait for what the server had sent already.
const drainTimeout = time.Second

// close ends the subscription and hands over what the server had sent until it
// heard of that: without a lease those would wait for ack_wait.
func (p *puller) close(rest func(*nats.Msg)) {
	ended := time.After(drainTimeout)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	if p.sub.Drain() != nil {
		return // the connection is closed
	}
	for {
		select {
		case msg := <-p.messages:
			if !isStatus(msg) {
				rest(msg)
			}
			continue
		default:
		}
		if !p.sub.IsValid() {
			return
		}
		select {
		case <-tick.C:
		case <-ended:
			return
		}
	}
}

// next returns the next message. leases tells how many are held already.
func (p *puller) next(ctx context.Context, leases *leaseSet, tick <-chan time.Time) (*nats.Msg, error) {
	for {
		if p.quick++; p.quick%between != 0 {
			select {
			case msg := <-p.messages:
				if message, err := p.take(msg); message != nil || err != nil {
					return message, err
				}
				continue
			default: // nothing is there: time to look around
			}
		}
		held, released := leases.counts()
		p.adapt(released)
		if err := p.ask(p.capacity - held - p.requested); err != nil {
			return nil, err
		}
		leases.tellAt(p.few())
		select {
		case msg := <-p.messages:
			if message, err := p.take(msg); message != nil || err != nil {
				return message, err
			}
		case <-leases.room:
		case <-tick:
			if err := p.listen(); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// between is after how many messages that are there already the puller looks
// whether to ask for more.
const between = 16

// take returns a message, or takes note of a status and returns nothing.
func (p *puller) take(msg *nats.Msg) (*nats.Msg, error) {
	p.alive = true
	if isStatus(msg) {
		return nil, p.status(msg)
	}
	p.fulfil(1)
	return msg, nil
}

// fulfil takes messages off the oldest requests, which the server serves first.
func (p *puller) fulfil(n int) {
	for n > 0 && len(p.open) > 0 {
		k := min(n, p.open[0].left)
		p.open[0].left -= k
		p.requested -= k
		if n -= k; p.open[0].left == 0 {
			p.open = p.open[1:]
		}
	}
}

// soon is how far ahead messages are taken: those that will have started by
// then, if they go on as fast.
const soon = 100 * time.Millisecond

// adapt sets the capacity by how many messages were released lately.
func (p *puller) adapt(released uint64) {
	now := time.Now()
	took := now.Sub(p.window)
	if took < soon/10 {
		return
	}
	lately := int(float64(released-p.released) * float64(soon) / float64(took))
	p.capacity = p.running + max(min(p.running, maxAhead), min(lately, maxAhead))
	p.window, p.released = now, released
}

// worth is for how many messages a pull request is sent: for a quarter of the room.
func (p *puller) worth() int { return max(1, p.capacity/4) }

// few is how many may be held for a pull request to be worth it. There is none
// without a connection.
func (p *puller) few() int {
	if !p.nc.IsConnected() {
		return -1
	}
	return p.capacity - p.requested - p.worth()
}

// ask sends a pull request for n messages when that is worth one.
func (p *puller) ask(n int) error {
	if n < p.worth() || !p.nc.IsConnected() {
		return nil
	}
	body, err := json.Marshal(pullRequest{Batch: n, Expires: pullExpiry, Heartbeat: pullBeat})
	if err != nil {
		return fmt.Errorf("encode pull request: %w", err)
	}
	if p.requested == 0 {
		p.heard = time.Now()
	}
	if err := p.nc.PublishRequest(p.subject, p.inbox, body); err != nil {
		return fmt.Errorf("send pull request: %w", err)
	}
	p.requested += n
	p.open = append(p.open, openRequest{left: n, until: time.Now().Add(pullExpiry + pullBeat)})
	return nil
}

// openRequest is a pull request with what it has still to bring, and the time
// by which the server has answered it or never will.
type openRequest struct {
	left  int
	until time.Time
}

// listen looks, once a second, whether the server still answers. After a
// reconnect it has forgotten what was asked for.
func (p *puller) listen() error {
	if p.alive || !p.nc.IsConnected() {
		p.heard, p.alive = time.Now(), false
	}
	if !p.nc.IsConnected() {
		return nil
	}
	if n := p.nc.Stats().Reconnects; n != p.reconnect {
		p.reconnect, p.heard, p.unverified = n, time.Now(), true
		return p.resubscribe()
	}
	if p.unverified {
		err := p.verify()
		if errors.As(err, &permanent{}) {
			return err
		}
		p.unverified = err != nil // otherwise it is asked again
	}
	for len(p.open) > 0 && time.Now().After(p.open[0].until) {
		p.fulfil(p.open[0].left) // dropped on the way, by a full queue say
	}
	if p.requested > 0 && time.Since(p.heard) > 2*pullBeat {
		return errNoHeartbeat
	}
	return nil
}

// isStatus tells the server's word about a request from a message, which has a
// subject to settle it on.
func isStatus(msg *nats.Msg) bool {
	return msg.Reply == "" && len(msg.Data) == 0 && msg.Header["Status"] != nil
}

// status takes note of what the server says about a request.
func (p *puller) status(msg *nats.Msg) error {
	code, text := msg.Header.Get("Status"), msg.Header.Get("Description")
	switch code {
	case "100": // alive
		return nil
	case "503":
		return fmt.Errorf("%w, or JetStream is not ready", errConsumerGone)
	case "404", "408", "409":
		if text == "Consumer Deleted" || text == "Consumer is push based" {
			return errConsumerGone
		}
		if left, err := strconv.Atoi(msg.Header.Get("Nats-Pending-Messages")); err == nil {
			p.fulfil(left)
			return nil
		}
		if text == "Leadership Change" || text == "Server Shutdown" {
			p.fulfil(p.requested) // it has forgotten all requests
			return nil
		}
	}
	return fmt.Errorf("pull request refused: %s %s", code, text)
}
