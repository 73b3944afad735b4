package trigger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime"
)

// Timing of a consumer.
const (
	apiTimeout = 3 * time.Second        // of one request to JetStream
	retryEvery = 2 * time.Second        // while something is missing
	lagEvery   = 2 * time.Second        // between looks at the durable
	pullExpiry = 30 * time.Second       // of one pull request
	pullBeat   = 5 * time.Second        // of its heartbeats
	giveBack   = 100 * time.Millisecond // delay of what is given back on drain
	maxAhead   = 1000                   // messages held beside those that run
)

// Dispatcher takes batches.
type Dispatcher interface {
	Dispatch(ctx context.Context, batch []runtime.Delivery)
}

// Function is what a consumer needs of runtime.Function; see there.
type Function interface {
	Dispatcher
	Admit(ctx context.Context) (runtime.Admission, error)
	Position(ctx context.Context, s host.Source) (p host.Position, database string, err error)
	Raise(s host.Source, sequence uint64)
}

// ConsumerConfig is what a stream trigger needs.
type ConsumerConfig struct {
	JS          jetstream.JetStream
	Function    string
	Trigger     manifests.Trigger
	Concurrency int
	Dispatcher  Function
	DeadLetters *DeadLetters
	Attempts    *Attempts
	Leases      *Leases
	Quiet       *Quiet
	Owners      *Owners
	Sole        *Sole  // of a function that runs on one host at a time; nil for others
	Marks       string // the file that says what the handlers are at; "" for none
	Log         zerolog.Logger
	// Prepare, when set, runs before the stream is looked up: a schedule makes
	// its stream and its definition there.
	Prepare func(ctx context.Context) error
}

// Consumer takes messages from one durable and hands them on in batches. Make
// it with NewConsumer and call Run once.
type Consumer struct {
	config ConsumerConfig
	leases *leaseSet
	board  board

	// Of the session.
	source   host.Source
	replicas int // of the stream, and so of what belongs to it
	marks    *marks
	claim    claim
	revision uint64 // of the claim
	noted    time.Time
}

// NewConsumer makes a consumer.
func NewConsumer(config ConsumerConfig) *Consumer {
	t := config.Trigger
	c := &Consumer{config: config, leases: newLeaseSet(t.AckWait.Std())}
	kind := "stream"
	if t.Schedule != "" {
		kind = "schedule"
	}
	c.board.state = State{Name: t.Name, Kind: kind, Stream: t.Stream, Durable: t.DurableName, State: StateStarting}
	return c
}

// State says how the consumer is.
func (c *Consumer) State() State { return c.board.get() }

// Run takes messages until ctx ends, and waits for whatever is missing: the
// server, the stream, the durable. Then it gives back what it has not started
// and returns once the running handlers have ended; hard ends those.
func (c *Consumer) Run(ctx, hard context.Context) {
	c.config.Leases.add(c.leases)
	defer c.config.Leases.remove(c.leases)
	defer c.board.set(StateStopped, "")
	defer func() {
		if err := c.marks.close(); err != nil {
			c.config.Log.Warn().Err(err).Msg("marks could not be closed")
		}
	}()
	said := ""
	for ctx.Err() == nil {
		err := c.session(ctx, hard)
		if err == nil || ctx.Err() != nil {
			continue
		}
		state := StateWaiting
		switch {
		case errors.As(err, &permanent{}):
			state = StateFailed
		case errors.As(err, &standby{}):
			state = StateStandby
		}
		c.board.set(state, err.Error())
		if err.Error() != said { // once for each reason
			said = err.Error()
			c.config.Log.Warn().Str("trigger", c.config.Trigger.Name).Str("state", state).Msg(said)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryEvery):
		}
	}
}

// session finds the stream and the durable and consumes until that breaks.
func (c *Consumer) session(ctx, hard context.Context) error {
	if !c.config.Sole.Held() {
		return standby{errors.New("another host runs the function, which runs on one at a time")}
	}
	found, created, err := c.open(ctx)
	if err != nil {
		return err
	}
	hard, release := context.WithCancel(hard)
	defer release()
	if err := c.prepare(ctx, created); err != nil {
		return err
	}
	t := c.config.Trigger
	running := c.config.Concurrency * t.Batch.Max
	pull, err := newPuller(c.config.JS, t.Stream, t.DurableName, running)
	if err != nil {
		return fmt.Errorf("pull from durable %s: %w", t.DurableName, err)
	}
	pull.verify = func() error { return c.verify(ctx, created) }
	c.board.set(StateOK, "")
	sctx, end := context.WithCancel(ctx)
	defer end()
	queue := make(chan *delivery, running+maxAhead)
	readErr := make(chan error, 1)
	var group sync.WaitGroup
	group.Go(func() {
		defer close(queue)
		defer end()
		defer pull.close(func(msg *nats.Msg) { c.giveBack(msg, created) })
		readErr <- c.read(sctx, pull, queue, created)
	})
	group.Go(func() { c.watch(sctx, found) })
	if c.config.Sole != nil {
		group.Go(func() {
			c.config.Sole.lost(sctx)
			end() // take no more
			if !c.config.Sole.Held() {
				release() // and end what runs: another host does it
			}
		})
	}
	c.work(sctx, hard, queue)
	group.Wait()
	c.noted = time.Time{} // so that the last position is kept
	c.look(context.WithoutCancel(ctx), found)
	if err := <-readErr; err != nil && ctx.Err() == nil {
		return fmt.Errorf("read from durable %s: %w", t.DurableName, err)
	}
	return nil
}

// open returns the durable, and when its stream was created.
func (c *Consumer) open(ctx context.Context) (jetstream.Consumer, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*apiTimeout)
	defer cancel()
	t := c.config.Trigger
	if c.config.Prepare != nil {
		if err := c.config.Prepare(ctx); err != nil {
			return nil, time.Time{}, err
		}
	}
	lookup, done := context.WithTimeout(ctx, apiTimeout)
	defer done()
	stream, err := c.config.JS.Stream(lookup, t.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, time.Time{}, fmt.Errorf("stream %s does not exist; create it, or declare it in streams.yaml", t.Stream)
	}
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("look up stream %s: %w", t.Stream, err)
	}
	info := stream.CachedInfo()
	c.replicas = info.Config.Replicas
	c.source = host.SourceOf(c.config.Function, &host.Message{Consumer: t.DurableName, Stream: t.Stream, StreamCreated: info.Created})
	if err := c.checkClaim(ctx, stream); err != nil {
		return nil, time.Time{}, err
	}
	found, notes, err := c.ensureDurable(ctx, stream)
	if err != nil {
		return nil, time.Time{}, err
	}
	if err := c.take(ctx, found.CachedInfo().AckFloor.Stream); err != nil {
		return nil, time.Time{}, err
	}
	c.leases.set(found.CachedInfo().Config.AckWait)
	if len(notes) > 0 {
		c.config.Log.Info().Str("durable", t.DurableName).Strs("changed", notes).Msg("adopted a durable")
		c.board.update(func(s *State) { s.Notes = notes })
	}
	return found, info.Created, nil
}

// prepare reads what is known against messages, and adds those whose handlers
// ran when the host died the last time.
func (c *Consumer) prepare(ctx context.Context, created time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, 3*apiTimeout)
	defer cancel()
	if err := c.config.Attempts.load(ctx); err != nil {
		return err
	}
	if c.marks != nil {
		c.marks.clear(created.UnixNano()) // no handler runs now, and the stream may be another
		return nil
	}
	if c.config.Marks == "" {
		return nil
	}
	m, left, err := openMarks(c.config.Marks, created.UnixNano(), c.config.Concurrency, c.config.Trigger.Batch.Max)
	if err != nil {
		return err
	}
	for _, s := range left {
		host.CrashPoint("before suspect", "")
		if err := c.suspect(ctx, created, s); err != nil {
			return errors.Join(err, m.close())
		}
		m.kept(s) // so that one death counts once, also when this breaks off
	}
	if len(left) > 0 {
		c.config.Log.Warn().Int("messages", len(left)).Msg("the host did not stop in order; what its handlers were at is watched")
		host.CrashPoint("before marks cleared", "")
		m.clear(created.UnixNano())
	}
	c.marks = m
	return nil
}

// suspect notes that a message's handler ran when the host died.
func (c *Consumer) suspect(ctx context.Context, created time.Time, s started) error {
	m := &host.Message{Consumer: c.config.Trigger.DurableName, StreamCreated: created, StreamSeq: s.sequence, NumDelivered: 2}
	r, err := c.config.Attempts.get(ctx, c.config.Function, m)
	if err != nil {
		return err
	}
	r.Starts++
	if s.alone {
		r.Alone++
	}
	return c.config.Attempts.put(ctx, recordKey(c.config.Function, m), r, c.replicas)
}

// checkPast refuses a stream that has other messages under the numbers that the
// function's inbox knows: they would be taken for done.
func (c *Consumer) checkPast(ctx context.Context, stream jetstream.Stream, p host.Position) error {
	if p.High == 0 {
		return nil
	}
	if last := stream.CachedInfo().State.LastSeq; last < p.High {
		return permanent{fmt.Errorf("%w: its last message is %d, and %d is done already; %s", host.ErrWentBack, last, p.High, waysOn)}
	}
	stored, err := stream.GetMsg(ctx, p.High)
	if errors.Is(err, jetstream.ErrMsgNotFound) { // it has been removed since
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the message that was done last: %w", err)
	}
	if !stored.Time.Equal(p.HighAt) {
		return permanent{fmt.Errorf("%w: message %d was stored at %s, and the one that is done at %s; %s", host.ErrWentBack, p.High, stored.Time.UTC().Format(time.RFC3339Nano), p.HighAt.UTC().Format(time.RFC3339Nano), waysOn)}
	}
	return nil
}

// verify looks whether the stream is still the one that the session began with.
func (c *Consumer) verify(ctx context.Context, created time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	stream, err := c.config.JS.Stream(ctx, c.config.Trigger.Stream)
	if err != nil {
		return err
	}
	if !stream.CachedInfo().Created.Equal(created) {
		return permanent{fmt.Errorf("stream %s was made anew", c.config.Trigger.Stream)}
	}
	p, _, err := c.config.Dispatcher.Position(ctx, c.source)
	if err != nil {
		return err
	}
	return c.checkPast(ctx, stream, p)
}

// waysOn is what can be done about a stream that went back.
const waysOn = "restore the database of the same time, or give the trigger another durable_name to have the stream handled anew"

// read puts messages into the queue, with their leases held from now on, until
// ctx ends or the durable is gone. The queue has room for all that was asked for.
func (c *Consumer) read(ctx context.Context, pull *puller, queue chan<- *delivery, created time.Time) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		msg, err := pull.next(ctx, c.leases, tick.C)
		if err != nil {
			return err
		}
		d, err := newDelivery(c, msg, created)
		if err != nil {
			return err
		}
		c.leases.hold(d)
		host.CrashPoint("pulled", d.message.Subject)
		queue <- d
	}
}

// giveBack lets other hosts have what arrived and was not taken.
func (c *Consumer) giveBack(msg *nats.Msg, created time.Time) {
	if d, err := newDelivery(c, msg, created); err == nil {
		d.reply(nakAfter(giveBack)) // it was never held; if it is lost, the message comes after ack_wait
	}
}

// watch looks at the durable now and then, for the lag that status shows.
func (c *Consumer) watch(ctx context.Context, consumer jetstream.Consumer) {
	ticker := time.NewTicker(lagEvery)
	defer ticker.Stop()
	for {
		c.look(ctx, consumer)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (c *Consumer) look(ctx context.Context, consumer jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	info, err := consumer.Info(ctx)
	if err != nil {
		return // the pull loop finds out on its own what is wrong
	}
	c.config.Dispatcher.Raise(c.source, info.AckFloor.Stream)
	c.leases.set(info.Config.AckWait) // somebody may have set it
	c.note(ctx, info.AckFloor.Stream)
	c.board.update(func(s *State) {
		s.Pending, s.Outstanding = info.NumPending, info.NumAckPending
		if info.Delivered.Last != nil {
			s.LastMessage = *info.Delivered.Last
		}
	})
}
