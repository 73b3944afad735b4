package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pelton-run/pelton/host"
)

// Bounds and times of an outbox.
const (
	// MaxUnsent rows that cannot be sent stop the function from taking more.
	MaxUnsent = 10_000
	// sweepEvery is how often rows that could not be sent are tried again, and how
	// soon sent ones are forgotten when no transaction does it on its way.
	sweepEvery = time.Second
)

// outbox sends what a function's transactions have left to be sent. It is safe
// for concurrent use.
type outbox struct {
	function string
	db       host.Database
	sender   host.Sender

	turn   chan struct{} // holds one value: whoever takes it sends
	sent   int64         // rows up to here are stored in their streams
	failed time.Time     // when sending last failed

	backlog atomic.Int64
	failure atomic.Pointer[string]
}

func newOutbox(function string, db host.Database, sender host.Sender) *outbox {
	o := &outbox{function: function, db: db, sender: sender, turn: make(chan struct{}, 1)}
	o.turn <- struct{}{}
	return o
}

// flush sends everything that is committed, in its order. It returns when it is
// stored, or why it is not.
func (o *outbox) flush(ctx context.Context) error {
	begun := time.Now()
	select {
	case <-o.turn:
		defer func() { o.turn <- struct{}{} }()
	case <-ctx.Done():
		return fmt.Errorf("wait for others to send: %w", context.Cause(ctx))
	}
	if text := o.failure.Load(); text != nil && o.failed.After(begun) {
		return errors.New(*text) // as it went for the one before
	}
	for {
		page, err := o.db.Unsent(ctx, o.function, o.sent)
		if err == nil && len(page) == 0 {
			o.backlog.Store(0)
			o.failure.Store(nil)
			return nil
		}
		if err == nil {
			err = o.send(ctx, page)
		}
		if err != nil {
			o.fail(err)
			return err
		}
	}
}

func (o *outbox) send(ctx context.Context, page []host.Unsent) error {
	messages := make([]*host.Outgoing, len(page))
	for i := range page {
		messages[i] = page[i].Message
	}
	host.CrashPoint("before send", "")
	stored, err := o.sender.Send(ctx, messages)
	host.CrashPoint("after send", "")
	if stored > 0 {
		o.sent = page[stored-1].ID
		o.db.Sent(o.function, o.sent)
	}
	if err != nil {
		return fmt.Errorf("send what was published: %w", err)
	}
	return nil
}

func (o *outbox) fail(err error) {
	text := err.Error()
	o.failed = time.Now()
	o.failure.Store(&text)
	// For the count the caller's time may be over already.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if n, err := o.db.Backlog(ctx, o.function, o.sent); err == nil {
		o.backlog.Store(int64(n))
	}
}

// full reports whether so much waits that no more may be added.
func (o *outbox) full() bool { return o.backlog.Load() >= MaxUnsent }

// trouble says that rows wait and why, "" when none do.
func (o *outbox) trouble() string {
	text := o.failure.Load()
	if text == nil {
		return ""
	}
	return fmt.Sprintf("%d published messages wait in the outbox: %s", o.backlog.Load(), *text)
}

// run sends what an earlier run has left, and looks after what could not be sent,
// until ctx ends.
func (o *outbox) run(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	o.sweep(ctx, true)
	for {
		select {
		case <-ticker.C:
			o.sweep(ctx, o.failure.Load() != nil)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lingerTimeout)
			defer cancel()
			o.sweep(last, false)
			return
		}
	}
}

// sweep sends if there is something to send, and forgets what is sent. Its
// errors are in trouble, and it comes again.
func (o *outbox) sweep(ctx context.Context, send bool) {
	host.CrashPoint("sweep", "")
	if send {
		sending, cancel := context.WithTimeout(ctx, settleTimeout)
		defer cancel()
		o.flush(sending)
	}
	o.db.Tidy(ctx)
}
