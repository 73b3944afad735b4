package sdk

import (
	"context"
	"errors"
	"time"
)

// Header is a message's headers. Keys are case-sensitive, as in NATS.
type Header map[string][]string

// Get returns the first value of a key, "" if there is none.
func (h Header) Get(key string) string {
	if v := h[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// Values returns all values of a key.
func (h Header) Values(key string) []string { return h[key] }

// Metadata is where a message comes from, in the words of jetstream.MsgMetadata.
type Metadata struct {
	Stream       string
	Consumer     string
	Sequence     SequencePair
	NumDelivered uint64 // of this message, from 1
	NumPending   uint64 // behind it
	Timestamp    time.Time
}

// SequencePair is a message's place in the stream and among the deliveries.
type SequencePair struct {
	Consumer uint64
	Stream   uint64
}

// Msg is one message. It belongs to the handler that got it.
type Msg struct {
	id       uint32
	trigger  string
	subject  string
	reply    string
	headers  Header
	data     []byte
	metadata Metadata
	stored   int64   // nanoseconds since 1970, the metadata's timestamp unless that is set
	answer   *Answer // natively, for sdktest
}

// Answer is what a handler answered to a request.
type Answer struct {
	Code, Text string // of an error
	Data       []byte
}

// NewMsg makes a message, for tests.
func NewMsg(subject string, headers Header, data []byte) *Msg {
	return &Msg{id: 2, subject: subject, headers: headers, data: data, metadata: Metadata{NumDelivered: 1}}
}

// WithMetadata sets where a message comes from, for tests.
func (m *Msg) WithMetadata(trigger string, md Metadata) *Msg {
	m.trigger, m.metadata = trigger, md
	return m
}

// Subject is the subject that the message was published on.
func (m *Msg) Subject() string { return m.subject }

// Reply is where a request wants its answer; see [Msg.Respond].
func (m *Msg) Reply() string { return m.reply }

// Headers returns the message's headers; nil if it has none.
func (m *Msg) Headers() Header { return m.headers }

// Data is the message's body.
func (m *Msg) Data() []byte { return m.data }

// Metadata says where the message comes from.
func (m *Msg) Metadata() Metadata {
	md := m.metadata
	if m.stored != 0 {
		md.Timestamp = time.Unix(0, m.stored)
	}
	return md
}

// Trigger is the name of the manifest's trigger that took the message.
func (m *Msg) Trigger() string { return m.trigger }

// Respond answers a request. It can be called once.
func (m *Msg) Respond(data []byte) error { return m.respond(&Answer{Data: data}) }

// RespondError answers a request with an error, a code such as "400" and a text.
func (m *Msg) RespondError(code, text string, data []byte) error {
	return m.respond(&Answer{Code: code, Text: text, Data: data})
}

// Answered returns what was answered, for tests.
func (m *Msg) Answered() *Answer { return m.answer }

// Batch is the messages of one invocation, in the stream's order.
type Batch struct {
	msgs    []*Msg
	settled *int // by Each, natively nil
}

// NewBatch makes a batch, for tests.
func NewBatch(msgs ...*Msg) Batch { return Batch{msgs: msgs} }

// Len is the number of messages.
func (b Batch) Len() int { return len(b.msgs) }

// Messages returns the messages.
func (b Batch) Messages() []*Msg { return b.msgs }

// Each calls f for each message, one after another, and settles each by what f
// returned for it: a message that fails, or whose f panics, does not touch the
// others. What f writes to the database lies in a savepoint of its own, undone
// when f fails. f must pass on the ctx that it gets. The error is the host's,
// if it cannot go on; return it from the handler.
func (b Batch) Each(ctx context.Context, f func(ctx context.Context, msg *Msg) error) error {
	contexts := make([]idContext, len(b.msgs))
	for i, m := range b.msgs {
		mctx := &contexts[i]
		mctx.Context, mctx.id = ctx, m.id
		if err := begin(mctx, m); err != nil {
			return err
		}
		if err := end(mctx, m, guarded(mctx, m, f)); err != nil {
			return err
		}
		if b.settled != nil {
			*b.settled++
		}
	}
	return nil
}

// guarded turns a panic of the author's code into an error of its message.
func guarded(ctx context.Context, m *Msg, f func(context.Context, *Msg) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("panic: " + panicText(p))
		}
	}()
	return f(ctx, m)
}

func panicText(p any) string {
	switch p := p.(type) {
	case error:
		return p.Error()
	case string:
		return p
	case interface{ String() string }:
		return p.String()
	}
	return "a value that is not text"
}

type idKey struct{}

// idContext carries the id of the delivery that calls are for.
type idContext struct {
	context.Context
	id uint32
}

// delivered is a context of ours.
type delivered interface{ delivery() uint32 }

func (c *idContext) delivery() uint32 { return c.id }

func (c *idContext) Value(key any) any {
	if key == (idKey{}) {
		return c.id
	}
	return c.Context.Value(key)
}

// deliveryOf returns the delivery that a context is for, 0 for none.
func deliveryOf(ctx context.Context) uint32 {
	if d, ok := ctx.(delivered); ok { // as it mostly is; asking by Value allocates
		return d.delivery()
	}
	if id, ok := ctx.Value(idKey{}).(uint32); ok {
		return id
	}
	return 0
}
