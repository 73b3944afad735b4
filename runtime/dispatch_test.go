package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// invokerFunc is an invoker made of a function.
type invokerFunc func(c *host.Call) error

func (f invokerFunc) Invoke(c *host.Call) error { return f(c) }

// fakeDelivery records how it was settled.
type fakeDelivery struct {
	m      *host.Message
	record Record
	giveUp error // what GiveUp returns

	mu      sync.Mutex
	settled []string
}

func (d *fakeDelivery) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settled = append(d.settled, fmt.Sprintf(format, args...))
}

func (d *fakeDelivery) Message() *host.Message { return d.m }
func (d *fakeDelivery) Record(context.Context) (Record, error) {
	return d.record, nil
}
func (d *fakeDelivery) Ack(context.Context, *host.Response) error {
	d.note("ack")
	return nil
}
func (d *fakeDelivery) Retry(_ context.Context, v Verdict) error {
	if v.Charged {
		d.note("retry")
	} else {
		d.note("retry for nothing")
	}
	return nil
}
func (d *fakeDelivery) DeadLetter(context.Context, Verdict) (*host.Outgoing, error) {
	return &host.Outgoing{Subject: "dlq." + d.m.Subject}, nil
}
func (d *fakeDelivery) GiveUp(_ context.Context, v Verdict, letter *host.Outgoing) error {
	if d.giveUp == nil {
		d.note("give up: %s", v.Error)
	}
	return d.giveUp
}

func batchOf(n int) ([]Delivery, []*fakeDelivery) {
	var batch []Delivery
	var fakes []*fakeDelivery
	for i := range n {
		d := &fakeDelivery{m: &host.Message{Subject: fmt.Sprintf("m.%d", i), Stream: "S", StreamSeq: uint64(i + 1), NumDelivered: 1, Timestamp: time.Now()}}
		batch, fakes = append(batch, d), append(fakes, d)
	}
	return batch, fakes
}

func newFunction(t *testing.T, grants *host.Grants, invoke invokerFunc) *Function {
	t.Helper()
	m, err := manifests.Decode("f.yaml", []byte("name: f\nversion: 1.0.0\ntimeout: 1s\ntriggers: [{stream: S}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if grants == nil {
		grants = &host.Grants{}
	}
	return New(m, "", invoke, grants, zerolog.New(io.Discard))
}

// endAll settles the deliveries of a call as a guest would.
func endAll(c *host.Call, outcome func(i int) host.Outcome) {
	for i := range c.Deliveries() {
		id := host.BatchID + 1 + uint32(i)
		if err := errors.Join(c.Begin(id), c.End(id, outcome(i))); err != nil {
			panic(err)
		}
	}
}

func TestDispatch(t *testing.T) {
	batch, got := batchOf(3)
	f := newFunction(t, nil, func(c *host.Call) error {
		endAll(c, func(i int) host.Outcome {
			return []host.Outcome{{Disposition: host.Ack}, {Disposition: host.Nak, Reason: "busy"}, {Disposition: host.Term, Reason: "bad"}}[i]
		})
		return nil
	})
	f.Dispatch(t.Context(), batch)
	for i, want := range []string{"ack", "retry", "give up: bad"} {
		if s := strings.Join(got[i].settled, ","); s != want {
			t.Errorf("delivery %d: %s, want %s", i, s, want)
		}
	}
	s := f.Stats
	if s.Delivered.Load() != 3 || s.Acked.Load() != 1 || s.Naked.Load() != 1 || s.DeadLetters.Load() != 1 || s.InFlight() != 0 {
		t.Errorf("figures are wrong: %+v", s)
	}
}

// A delivery that was in an instance that went down with others in it runs again,
// in the company that is asked for, and is charged for nothing.
func TestCrowded(t *testing.T) {
	batch, got := batchOf(1)
	var companies []int
	f := newFunction(t, nil, func(c *host.Call) error {
		if companies = append(companies, c.Company); len(companies) < 3 {
			return &host.Crowded{Err: errors.New("trap"), Company: 8 >> len(companies)}
		}
		endAll(c, func(int) host.Outcome { return host.Outcome{Disposition: host.Ack} })
		return nil
	})
	f.Dispatch(t.Context(), batch)
	if s := strings.Join(got[0].settled, ","); s != "ack" || fmt.Sprint(companies) != "[0 4 2]" {
		t.Errorf("settled %s in companies of %v, want ack in 0, 4 and 2", s, companies)
	}
}

// A handler that says nothing about a delivery did not ack it.
func TestUnsettledIsNoAck(t *testing.T) {
	batch, got := batchOf(1)
	newFunction(t, nil, func(*host.Call) error { return nil }).Dispatch(t.Context(), batch)
	if s := strings.Join(got[0].settled, ","); s != "retry" {
		t.Errorf("settled %s, want retry", s)
	}
}

// When an invocation is taken down, only the delivery that fails alone is
// charged; each of the others is settled once, well.
func TestTakenDown(t *testing.T) {
	for _, tellsWho := range []bool{true, false} {
		batch, got := batchOf(16)
		runs := 0
		f := newFunction(t, nil, func(c *host.Call) error {
			runs++
			for i := range c.Deliveries() {
				id := host.BatchID + 1 + uint32(i)
				if tellsWho {
					c.Begin(id)
				}
				if c.Deliveries()[i].Message.Subject == "m.11" {
					return errors.New("trap")
				}
				if err := c.End(id, host.Outcome{Disposition: host.Ack}); err != nil {
					panic(err)
				}
			}
			return nil
		})
		f.Dispatch(t.Context(), batch)
		for i, d := range got {
			want := "ack"
			if i == 11 {
				want = "retry"
			}
			if s := strings.Join(d.settled, ","); s != want {
				t.Errorf("delivery %d: settled %s, want %s", i, s, want)
			}
		}
		if runs > 10 {
			t.Errorf("%d invocations for a batch of 16", runs)
		}
	}
}

// A dead letter that cannot be stored leaves the message in the stream.
func TestDeadLetterNotStored(t *testing.T) {
	batch, got := batchOf(1)
	got[0].giveUp = fmt.Errorf("%w: no stream takes it", ErrNotStored)
	f := newFunction(t, nil, func(c *host.Call) error {
		endAll(c, func(int) host.Outcome { return host.Outcome{Disposition: host.Term} })
		return nil
	})
	f.Dispatch(t.Context(), batch)
	if s := strings.Join(got[0].settled, ","); s != "retry for nothing" {
		t.Errorf("settled %s, want a retry that is not charged", s)
	}
	if all := f.Troubles(); len(all) != 1 || all[0].State != Failing {
		t.Errorf("troubles %+v, want failing", all)
	}
	if f.Stats.DeadLetters.Load() != 0 || f.Stats.LastError().Text == "" {
		t.Error("the figures say that the dead letter was stored")
	}
}

func TestTimeout(t *testing.T) {
	batch, got := batchOf(1)
	f := newFunction(t, nil, func(c *host.Call) error {
		c.StartClock(time.Now())
		<-c.Context().Done()
		return context.Cause(c.Context())
	})
	f.Dispatch(t.Context(), batch)
	if s := strings.Join(got[0].settled, ","); s != "retry" || !strings.Contains(f.Stats.LastError().Text, "timeout") {
		t.Errorf("settled %s with %q, want retry with the timeout", s, f.Stats.LastError().Text)
	}
}

// fakeTx records what is done to a transaction, and knows some messages.
type fakeTx struct {
	host.Tx
	log    *[]string
	commit error
	known  []bool
	posted []host.Unsent
}

func (f *fakeTx) note(format string, args ...any) error {
	*f.log = append(*f.log, fmt.Sprintf(format, args...))
	return nil
}
func (f *fakeTx) Savepoint(context.Context) error { return f.note("savepoint") }
func (f *fakeTx) Release(context.Context) error   { return f.note("release") }
func (f *fakeTx) Restore(context.Context) error   { return f.note("restore") }
func (f *fakeTx) Rollback() error                 { return f.note("rollback") }
func (f *fakeTx) Lost() bool                      { return false }
func (f *fakeTx) Undo(context.Context) error      { return f.note("undo") }
func (f *fakeTx) Commit(context.Context) error    { f.note("commit"); return f.commit }
func (f *fakeTx) Known(context.Context, string, []*host.Message) ([]bool, error) {
	return f.known, nil
}
func (f *fakeTx) Seal(_ context.Context, _ string, done []*host.Message, send []*host.Outgoing) error {
	for _, m := range send {
		f.posted = append(f.posted, host.Unsent{ID: int64(len(f.posted) + 1), Message: m})
	}
	return f.note("seal %d", len(done))
}

// fakeDB is a database of one transaction.
type fakeDB struct {
	host.Database
	tx *fakeTx
}

func (d fakeDB) Begin(context.Context) (host.Tx, error) { d.tx.note("begin"); return d.tx, nil }
func (d fakeDB) Unsent(_ context.Context, _ string, above int64) ([]host.Unsent, error) {
	return d.tx.posted[above:], nil
}
func (d fakeDB) Sent(string, int64)         {}
func (d fakeDB) Tidy(context.Context) error { return nil }
func (d fakeDB) Backlog(context.Context, string, int64) (int, error) {
	return len(d.tx.posted), nil
}

// fakeSender records what is sent.
type fakeSender struct {
	log    *[]string
	err    error
	mended atomic.Bool
}

func (f *fakeSender) Send(_ context.Context, messages []*host.Outgoing) (int, error) {
	for i, m := range messages {
		*f.log = append(*f.log, "send "+m.Subject)
		if f.err != nil && !f.mended.Load() {
			return i, f.err
		}
	}
	return len(messages), nil
}

// fakePublisher records what is published.
type fakePublisher struct {
	log *[]string
	err error
	mu  sync.Mutex
}

func (f *fakePublisher) Check(context.Context, *host.Outgoing) error { return nil }
func (f *fakePublisher) Publish(_ context.Context, m *host.Outgoing) (host.PubAck, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*f.log = append(*f.log, "publish "+m.Subject)
	return host.PubAck{}, f.err
}

// The order is commit, with what is done and what is to be sent, then send, then
// ack; what a failed delivery did and published is dropped, and a dead letter is
// sent like anything else.
func TestTransaction(t *testing.T) {
	const well = "begin savepoint release savepoint release seal 2 commit send p.0 send p.1"
	ack, nak, term := host.Ack, host.Nak, host.Term
	tests := []struct {
		name     string
		commit   error
		send     error
		known    []bool
		outcomes []host.Disposition
		log      string
		settled  []string
	}{
		{"all well", nil, nil, nil, []host.Disposition{ack, ack}, well, []string{"ack", "ack"}},
		{"one fails", nil, nil, nil, []host.Disposition{nak, ack}, "begin savepoint restore savepoint release seal 1 commit send p.1", []string{"retry", "ack"}},
		{"one is given up on", nil, nil, nil, []host.Disposition{term, ack}, "begin savepoint restore savepoint release seal 2 commit send p.1 send dlq.m.0", []string{"give up: ", "ack"}},
		{"all fail", nil, nil, nil, []host.Disposition{nak, nak}, "begin savepoint restore savepoint restore rollback", []string{"retry", "retry"}},
		{"all fail and one for good", nil, nil, nil, []host.Disposition{nak, term}, "begin savepoint restore savepoint restore undo seal 1 commit send dlq.m.1", []string{"retry", "give up: "}},
		{"the only one fails for good", nil, nil, nil, []host.Disposition{term}, "begin undo seal 1 commit send dlq.m.0", []string{"give up: "}},
		{"commit fails", errors.New("disk full"), nil, nil, []host.Disposition{ack, ack}, strings.TrimSuffix(well, " send p.0 send p.1"), []string{"retry for nothing", "retry for nothing"}},
		{"sending fails", nil, errors.New("away"), nil, []host.Disposition{ack, nak}, "begin savepoint release savepoint restore seal 1 commit send p.0", []string{"retry for nothing", "retry"}},
		{"one is known", nil, nil, []bool{true, false}, []host.Disposition{ack}, "begin seal 1 commit send p.0", []string{"ack", "ack"}},
		{"all are known", nil, nil, []bool{true, true}, nil, "begin rollback", []string{"ack", "ack"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var log []string
			tx := &fakeTx{log: &log, commit: tt.commit, known: tt.known}
			grants := &host.Grants{Write: "d", Databases: map[string]host.Database{"d": fakeDB{tx: tx}}, Publish: &fakePublisher{log: &log}, Sender: &fakeSender{log: &log, err: tt.send}}
			f := newFunction(t, grants, func(c *host.Call) error {
				for i, disposition := range tt.outcomes {
					id := host.BatchID + 1 + uint32(i)
					err := c.Begin(id)
					_, perr := c.PublishStart(id, &host.Outgoing{Subject: fmt.Sprintf("p.%d", i)}, "")
					if err := errors.Join(err, perr, c.End(id, host.Outcome{Disposition: disposition})); err != nil {
						t.Error(err)
					}
				}
				return nil
			})
			batch, got := batchOf(max(len(tt.outcomes), len(tt.known)))
			f.Dispatch(t.Context(), batch)
			if s := strings.Join(log, " "); s != tt.log {
				t.Errorf("log = %s\nwant  %s", s, tt.log)
			}
			for i, want := range tt.settled {
				if s := strings.Join(got[i].settled, ","); s != want {
					t.Errorf("delivery %d: settled %s, want %s", i, s, want)
				}
			}
		})
	}
}

// A message whose handler ended the host too often is given up on without a call.
func TestCondemned(t *testing.T) {
	for _, tt := range []struct {
		r    Record
		want string
	}{
		{Record{Starts: 3, Alone: 1}, "give up: the host died 3 times while it handled this message, 1 times with nothing beside it"},
		{Record{Starts: 9}, "ack"}, {Record{Starts: 2, Alone: 2}, "ack"},
	} {
		batch, got := batchOf(1)
		got[0].record = tt.r
		called := false
		f := newFunction(t, nil, func(c *host.Call) error {
			called = true
			endAll(c, func(int) host.Outcome { return host.Outcome{Disposition: host.Ack} })
			return nil
		})
		f.Dispatch(t.Context(), batch)
		if s := strings.Join(got[0].settled, ","); s != tt.want || called != (tt.want == "ack") {
			t.Errorf("%+v: settled %s, called %v, want %s", tt.r, s, called, tt.want)
		}
	}
}

// A retry that publishes the same again has the same ids, in whatever order;
// something else has another, and so has a second identical one.
func TestMsgIDs(t *testing.T) {
	run := func(seq uint64, key string, bodies ...string) map[string]string {
		var log []string
		c := host.NewCall(t.Context(), "f", &host.Grants{Publish: &fakePublisher{log: &log}}, host.Limits{Publishes: 99, PublishSize: 99, Tickets: 99}, nil,
			[]*host.Message{{Stream: "S", StreamSeq: seq}})
		defer c.Close()
		ids := map[string]string{}
		for i, b := range bodies {
			m := &host.Outgoing{Subject: "s", Data: []byte(b)}
			if _, err := c.PublishStart(host.BatchID+1, m, key); err != nil {
				t.Fatal(err)
			}
			ids[fmt.Sprintf("%s#%d", b, strings.Count(strings.Join(bodies[:i], "|")+"|", b+"|"))] = m.MsgID
		}
		return ids
	}
	first, again := run(1, "", "a", "b", "a"), run(1, "", "b", "a", "a")
	for k, id := range first {
		if again[k] != id {
			t.Errorf("%s has another id on the retry", k)
		}
	}
	if first["a#0"] == first["a#1"] || first["a#0"] == first["b#0"] {
		t.Error("different publishes share an id")
	}
	if other := run(2, "", "a"); other["a#0"] == first["a#0"] {
		t.Error("different messages share an id")
	}
	if keyed := run(1, "k", "a", "b"); keyed["a#0"] != keyed["b#0"] {
		t.Error("one key has two ids")
	}
}

func TestGuestLogLimits(t *testing.T) {
	var out strings.Builder
	stats := NewStats()
	g := newGuestLog(zerolog.New(&out), manifests.Limits{Log: 100, LogLine: 20}, stats)
	for range 10 {
		g.Log(nil, 0, strings.Repeat("x", 50), [][2]string{{"k", "v"}})
	}
	if lines := strings.Count(out.String(), "\n"); lines != 5 {
		t.Errorf("%d lines of 20 bytes went through 100 bytes a second, want 5", lines)
	}
	if strings.Contains(out.String(), strings.Repeat("x", 21)) {
		t.Error("a line is longer than its limit")
	}
	if got := stats.LogDropped.Load(); got != 5 {
		t.Errorf("dropped = %d, want 5", got)
	}
}
