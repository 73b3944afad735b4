package trigger

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime"
	"github.com/pelton-run/pelton/runtime/broker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server with one stream, and a function made of a Go handler.
type rig struct {
	t  *testing.T
	s  *broker.Server
	nc *nats.Conn
	js jetstream.JetStream
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s, err := broker.Start("127.0.0.1:0", t.TempDir(), broker.DefaultSync, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nc.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, s: s, nc: nc, js: js}
	r.stream(jetstream.StreamConfig{Name: "S", Subjects: []string{"a.>"}})
	return r
}

func (r *rig) stream(c jetstream.StreamConfig) jetstream.Stream {
	r.t.Helper()
	s, err := r.js.CreateStream(r.t.Context(), c)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *rig) publish(subject, body string) {
	r.t.Helper()
	if _, err := r.js.Publish(r.t.Context(), subject, []byte(body)); err != nil {
		r.t.Fatal(err)
	}
}

// handler is a guest in Go: it returns the outcome of one message.
type handler func(m *host.Message) host.Outcome

// Invoke implements runtime.Invoker.
func (h handler) Invoke(c *host.Call) error {
	for i := range c.Deliveries() {
		id := host.BatchID + 1 + uint32(i)
		if err := c.Begin(id); err != nil {
			return err
		}
		if err := c.End(id, h(c.Deliveries()[i].Message)); err != nil {
			return err
		}
	}
	return nil
}

// run runs a manifest's first trigger with a handler until stop is called or
// the test ends.
func (r *rig) run(manifest string, h handler) (c *Consumer, f *runtime.Function, stop func()) {
	r.t.Helper()
	m, err := manifests.Decode("f.yaml", []byte(manifest))
	if err != nil {
		r.t.Fatal(err)
	}
	log := zerolog.New(io.Discard)
	f = runtime.New(m, "", h, &host.Grants{}, log)
	leases := NewLeases()
	t := m.Triggers[0]
	config := ConsumerConfig{JS: r.js, Function: m.Name, Trigger: t, Concurrency: m.Concurrency, Dispatcher: f, Leases: leases, Log: log,
		Attempts: NewAttempts(r.js), Quiet: &Quiet{}, Owners: NewOwners(r.js, "h1"),
		DeadLetters: &DeadLetters{JS: r.js, Config: m.DeadLetter, Function: m.Name, Host: "h1", Region: "eu"}}
	if t.Kind() == "schedule" {
		config.Trigger, config.Prepare = ScheduleTrigger(t), PrepareSchedule(r.js, t)
	}
	c = NewConsumer(config)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { leases.Run(ctx) })
	group.Go(func() { c.Run(ctx, context.Background()) })
	stop = sync.OnceFunc(func() { cancel(); group.Wait() })
	r.t.Cleanup(stop)
	return c, f, stop
}

// until waits for a condition.
func until(t *testing.T, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for: %s", limit, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (r *rig) outstanding(durable string) int {
	c, err := r.js.Consumer(r.t.Context(), "S", durable)
	if err != nil {
		return -1
	}
	info, err := c.Info(r.t.Context())
	if err != nil {
		return -1
	}
	return info.NumAckPending + int(info.NumPending)
}

// letters reads the dead letters.
func (r *rig) letters(n int) []*jetstream.RawStreamMsg {
	r.t.Helper()
	var letters []*jetstream.RawStreamMsg
	until(r.t, fmt.Sprintf("%d dead letters", n), 10*time.Second, func() bool {
		s, err := r.js.Stream(r.t.Context(), DeadLetterStream)
		if err != nil {
			return n == 0
		}
		return s.CachedInfo().State.Msgs >= uint64(n)
	})
	s, err := r.js.Stream(r.t.Context(), DeadLetterStream)
	if err != nil {
		return nil
	}
	for seq := uint64(1); seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(r.t.Context(), seq)
		if err != nil {
			r.t.Fatal(err)
		}
		letters = append(letters, m)
	}
	return letters
}

func ack(*host.Message) host.Outcome { return host.Outcome{Disposition: host.Ack} }

// CON-1: the host spaces retries as the manifest says: never earlier, hardly
// later, each message by its own clock; then one dead letter.
func TestRetrySchedule(t *testing.T) {
	const messages = 20
	r := newRig(t)
	var mu sync.Mutex
	seen := map[string][]time.Time{}
	for i := range messages {
		r.publish(fmt.Sprintf("a.%d", i), "x")
	}
	r.run("name: f\ntriggers: [{stream: S}]\nretry: {max_deliver: 4, backoff: [300ms, 600ms, 1200ms]}\n", func(m *host.Message) host.Outcome {
		mu.Lock()
		defer mu.Unlock()
		seen[m.Subject] = append(seen[m.Subject], time.Now())
		return host.Outcome{Disposition: host.Nak, Reason: "always"}
	})
	r.letters(messages)
	mu.Lock()
	defer mu.Unlock()
	for subject, times := range seen {
		if len(times) != 4 {
			t.Errorf("%s: %d attempts, want 4", subject, len(times))
			continue
		}
		for i, want := range []time.Duration{300, 600, 1200} {
			want *= time.Millisecond
			// Later by the jitter, the server's ticks and a busy machine.
			if gap := times[i+1].Sub(times[i]); gap < want || gap > want+want/5+time.Second {
				t.Errorf("%s: gap %d = %s, want %s", subject, i+1, gap, want)
			}
		}
	}
	if got := len(r.letters(messages)); got != messages {
		t.Errorf("%d dead letters, want %d", got, messages)
	}
}

// A dead letter is the whole message: body, every header value, and where it
// came from. The source is settled after it is stored, on a work queue too.
func TestDeadLetter(t *testing.T) {
	r := newRig(t)
	r.stream(jetstream.StreamConfig{Name: "W", Subjects: []string{"w.>"}, Retention: jetstream.WorkQueuePolicy})
	body := string([]byte{0, 1, 2, 0xFF}) + strings.Repeat("b", 1000)
	msg := &nats.Msg{Subject: "w.1", Data: []byte(body), Header: nats.Header{"X-Trace": {"a", "c"}, "x-trace": {"b"}, "Nats-Msg-Id": {"mine"}}}
	if _, err := r.js.PublishMsg(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
	r.run("name: f\ntriggers: [{stream: W}]\nretry: {max_deliver: 3, backoff: [10ms]}\n", func(*host.Message) host.Outcome {
		return host.Outcome{Disposition: host.Nak, Reason: "a\nb " + strings.Repeat("long", 40_000)}
	})
	letters := r.letters(1)
	l := letters[0]
	if len(letters) != 1 || l.Subject != "dlq.w.1" || string(l.Data) != body {
		t.Fatalf("%d letters, the first on %s with %d bytes", len(letters), l.Subject, len(l.Data))
	}
	if got := append(slices.Clone(l.Header["X-Trace"]), l.Header["x-trace"]...); strings.Join(got, "") != "acb" {
		t.Errorf("X-Trace = %v, want a, c and b", got)
	}
	want := map[string]string{"Pelton-Function": "f", "Pelton-Host": "h1", "Pelton-Region": "eu", "Pelton-Stream": "W", "Pelton-Sequence": "1", "Pelton-Subject": "w.1",
		"Pelton-Consumer": "f", "Pelton-Deliveries": "3", "Pelton-Reason": "max_deliver", "Pelton-Original-Nats-Msg-Id": "mine"}
	for name := range maps.Keys(want) {
		if got := l.Header.Get(name); got != want[name] {
			t.Errorf("%s = %q, want %q", name, got, want[name])
		}
	}
	if text := l.Header.Get("Pelton-Error"); !strings.HasPrefix(text, "attempt 3 of 3: a b long") || len(text) > maxErrorHeader {
		t.Errorf("Pelton-Error has %d bytes: %.60q", len(text), text)
	}
	until(t, "an empty work queue", 5*time.Second, func() bool {
		s, err := r.js.Stream(t.Context(), "W")
		return err == nil && s.CachedInfo().State.Msgs == 0
	})
}

// Leases are extended: with fifty messages in flight, others behind them, and work
// that takes three times ack_wait, nothing is delivered again.
func TestLease(t *testing.T) {
	t.Parallel()
	const messages = 60
	r := newRig(t)
	for i := range messages {
		r.publish("a.x", fmt.Sprint(i))
	}
	_, f, _ := r.run("name: f\nconcurrency: 50\ntimeout: 60s\ntriggers: [{stream: S, ack_wait: 3s}]\n", func(*host.Message) host.Outcome {
		time.Sleep(9 * time.Second) // the work
		return host.Outcome{Disposition: host.Ack}
	})
	until(t, "all acked", 40*time.Second, func() bool { return f.Stats.Acked.Load() == messages })
	if got := f.Stats.Redelivered.Load(); got != 0 {
		t.Errorf("redelivered = %d, want 0", got)
	}
}

// A batch is full, or what came within the wait after its first message.
func TestBatchBySizeAndWait(t *testing.T) {
	r := newRig(t)
	for i := range 25 {
		r.publish("a.x", fmt.Sprint(i))
	}
	sizes := make(chan int, 100)
	queue := make(chan *delivery, 25)
	c := NewConsumer(ConsumerConfig{Trigger: manifests.Trigger{Batch: manifests.Batching{Max: 10, Wait: manifests.Duration(50 * time.Millisecond)}}, Concurrency: 1, Quiet: &Quiet{},
		Attempts: NewAttempts(nil), Dispatcher: dispatcherFunc(func(batch []runtime.Delivery) { sizes <- len(batch) })})
	for range 25 {
		queue <- &delivery{consumer: c}
	}
	done := make(chan struct{})
	go func() { c.work(t.Context(), t.Context(), queue); close(done) }()
	for _, want := range []int{10, 10, 5} { // the last after the wait, with the queue still open
		if got := <-sizes; got != want {
			t.Errorf("batch of %d, want %d", got, want)
		}
	}
	close(queue)
	<-done
}

type dispatcherFunc func(batch []runtime.Delivery)

func (f dispatcherFunc) Dispatch(_ context.Context, batch []runtime.Delivery) { f(batch) }
func (f dispatcherFunc) Admit(context.Context) (runtime.Admission, error) {
	return runtime.Admission{}, nil
}
func (f dispatcherFunc) Position(context.Context, host.Source) (host.Position, string, error) {
	return host.Position{}, "", nil
}
func (f dispatcherFunc) Raise(host.Source, uint64) {}

// A function whose stream is missing waits, says so, and begins when it is there.
func TestMissingStream(t *testing.T) {
	r := newRig(t)
	c, f, _ := r.run("name: f\ntriggers: [{stream: LATER}]\n", ack)
	until(t, "waiting", 5*time.Second, func() bool { return c.State().State == StateWaiting })
	if reason := c.State().Reason; !strings.Contains(reason, "LATER") {
		t.Errorf("reason = %q, want it to name the stream", reason)
	}
	r.stream(jetstream.StreamConfig{Name: "LATER", Subjects: []string{"later"}})
	r.publish("later", "x")
	until(t, "acked", 10*time.Second, func() bool { return f.Stats.Acked.Load() == 1 })
	if s := c.State(); s.State != StateOK {
		t.Errorf("state = %+v, want ok", s)
	}
}

// CON-6: a filter outside the stream's subjects is refused with both named.
func TestFilterOutside(t *testing.T) {
	r := newRig(t)
	c, _, _ := r.run("name: f\ntriggers: [{stream: S, filter_subjects: [b.*]}]\n", ack)
	until(t, "failed", 5*time.Second, func() bool { return c.State().State == StateFailed })
	if reason := c.State().Reason; !strings.Contains(reason, "b.*") || !strings.Contains(reason, "a.>") {
		t.Errorf("reason = %q, want both patterns", reason)
	}
	for _, tt := range []struct {
		a, b string
		want bool
	}{{"a.>", "a.b.c", true}, {"a.b.c", "a.*", false}, {"*.x", "a.*", true}, {"a", "a.>", false}, {">", "a", true}} {
		if got := manifests.SubjectsOverlap(tt.a, tt.b); got != tt.want {
			t.Errorf("overlaps(%s, %s) = %v, want %v", tt.a, tt.b, got, tt.want)
		}
	}
}

// A durable that exists is adopted with its position; what must not be is set
// right and reported.
func TestAdopt(t *testing.T) {
	r := newRig(t)
	s, err := r.js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	old, err := s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "f", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 5,
		BackOff: []time.Duration{time.Second, time.Minute}, InactiveThreshold: time.Hour, SampleFrequency: "7"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		r.publish("a.x", fmt.Sprint(i))
	}
	batch, err := old.Fetch(3)
	if err != nil {
		t.Fatal(err)
	}
	for m := range batch.Messages() {
		if err := m.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c, f, _ := r.run("name: f\ntriggers: [{stream: S, ack_wait: 45s}]\n", ack)
	until(t, "acked", 5*time.Second, func() bool { return f.Stats.Acked.Load() == 2 })
	info, err := old.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if k := info.Config; k.MaxDeliver != -1 || len(k.BackOff) != 0 || k.InactiveThreshold != 0 || k.AckWait != 45*time.Second || k.SampleFrequency != "7" {
		t.Errorf("config = %+v", k)
	}
	if notes := strings.Join(c.State().Notes, ";"); !strings.Contains(notes, "max_deliver 5 -> -1") || !strings.Contains(notes, "backoff removed") {
		t.Errorf("notes = %q", notes)
	}
	if _, err := s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "g", AckPolicy: jetstream.AckAllPolicy}); err != nil {
		t.Fatal(err)
	}
	c, _, _ = r.run("name: g\ntriggers: [{stream: S}]\n", ack)
	until(t, "failed", 5*time.Second, func() bool { return c.State().State == StateFailed })
	if reason := c.State().Reason; !strings.Contains(reason, "nats consumer rm S g") {
		t.Errorf("reason = %q, want the command that mends it", reason)
	}
}

// Every start is a position of a durable that delivers all.
func TestDeliverPolicies(t *testing.T) {
	r := newRig(t)
	for i := range 5 {
		r.publish("a.x", fmt.Sprint(i))
	}
	// A start in RFC 3339 without fractions: the second after the first messages.
	at := time.Now().UTC().Truncate(time.Second).Add(time.Second)
	until(t, "the next second", 2*time.Second, func() bool { return time.Now().After(at) })
	for i := 5; i < 8; i++ {
		r.publish("a.x", fmt.Sprint(i))
	}
	for policy, want := range map[string]uint64{
		"all": 8, "new": 0, "by_start_sequence, opt_start_seq: 4": 5, "by_start_time, opt_start_time: " + at.Format(time.RFC3339): 3,
	} {
		name := strings.ReplaceAll(policy[:strings.IndexAny(policy+",", ",")], "_", "-")
		_, f, _ := r.run("name: "+name+"\ntriggers: [{stream: S, deliver_policy: "+policy+"}]\n", ack)
		until(t, policy, 10*time.Second, func() bool { return f.Stats.Acked.Load() == want && r.outstanding(name) == 0 })
		if got := f.Stats.Acked.Load(); got != want {
			t.Errorf("%s: acked %d, want %d", policy, got, want)
		}
		info, err := r.js.Consumer(t.Context(), "S", name)
		if err != nil {
			t.Fatal(err)
		}
		if p := info.CachedInfo().Config.DeliverPolicy; p != jetstream.DeliverAllPolicy {
			t.Errorf("%s: the durable has policy %v, want all", policy, p)
		}
	}
}

// A durable that somebody deleted is made anew.
func TestDurableDeleted(t *testing.T) {
	r := newRig(t)
	c, f, _ := r.run("name: f\ntriggers: [{stream: S}]\n", ack)
	until(t, "ok", 5*time.Second, func() bool { return c.State().State == StateOK })
	if err := r.js.DeleteConsumer(t.Context(), "S", "f"); err != nil {
		t.Fatal(err)
	}
	r.publish("a.x", "x")
	until(t, "acked", 20*time.Second, func() bool { return f.Stats.Acked.Load() == 1 })
}

// On stop, running handlers finish, and what was not started is given back at
// once: another host has it long before ack_wait.
func TestDrain(t *testing.T) {
	r := newRig(t)
	for i := range 20 {
		r.publish("a.x", fmt.Sprint(i))
	}
	const m = "name: f\nconcurrency: 1\ntriggers: [{stream: S, ack_wait: 60s}]\n"
	var mu sync.Mutex
	handled := map[uint64]int{}
	slow := func(msg *host.Message) host.Outcome {
		time.Sleep(50 * time.Millisecond) // the work
		mu.Lock()
		handled[msg.StreamSeq]++
		mu.Unlock()
		return host.Outcome{Disposition: host.Ack}
	}
	_, f, stop := r.run(m, slow)
	until(t, "some handled", 10*time.Second, func() bool { return f.Stats.Acked.Load() >= 3 })
	stop()
	start := time.Now()
	r.run(m, slow)
	until(t, "all handled", 20*time.Second, func() bool { mu.Lock(); defer mu.Unlock(); return len(handled) == 20 && r.outstanding("f") == 0 })
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("the second host took %s", took)
	}
	mu.Lock()
	defer mu.Unlock()
	for seq, n := range handled {
		if n != 1 {
			t.Errorf("message %d was handled %d times", seq, n)
		}
	}
}

// A schedule fires on the server; the definition survives and is not begun anew.
func TestSchedule(t *testing.T) {
	r := newRig(t)
	c, f, stop := r.run("name: f\ntriggers: [{schedule: '@every 1s'}]\n", func(m *host.Message) host.Outcome {
		if m.Trigger != "schedule" || m.Subject != "pelton.schedule.fire.f" {
			t.Errorf("trigger %q on %q", m.Trigger, m.Subject)
		}
		return host.Outcome{Disposition: host.Ack}
	})
	until(t, "two firings", 10*time.Second, func() bool { return f.Stats.Acked.Load() >= 2 })
	if s := c.State(); s.Kind != "schedule" {
		t.Errorf("kind = %q, want schedule", s.Kind)
	}
	stop()
	s, err := r.js.Stream(t.Context(), ScheduleStream)
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.GetLastMsgForSubject(t.Context(), definitionPrefix+"f")
	if err != nil {
		t.Fatal(err)
	}
	_, f, _ = r.run("name: f\ntriggers: [{schedule: '@every 1s'}]\n", ack)
	until(t, "a firing", 10*time.Second, func() bool { return f.Stats.Acked.Load() >= 1 })
	after, err := s.GetLastMsgForSubject(t.Context(), definitionPrefix+"f")
	if err != nil || after.Sequence != before.Sequence {
		t.Errorf("the definition was stored anew: sequence %d, then %d (%v)", before.Sequence, after.Sequence, err)
	}
}

// What a host publishes while it pulls is answered by the stream, not by what
// the pull brought.
func TestPublishWhilePulling(t *testing.T) {
	r := newRig(t)
	_, f, _ := r.run("name: f\ntriggers: [{stream: S}]\n", ack)
	for i := range 500 {
		r.publish("a.x", fmt.Sprint(i))
	}
	until(t, "all acked", 20*time.Second, func() bool { return f.Stats.Acked.Load() == 500 })
}

// A message that looks like the server's word is a message.
func TestStatusLikeMessage(t *testing.T) {
	r := newRig(t)
	if _, err := r.js.PublishMsg(t.Context(), &nats.Msg{Subject: "a.x", Header: nats.Header{"Status": {"100"}}}); err != nil {
		t.Fatal(err)
	}
	_, f, _ := r.run("name: f\ntriggers: [{stream: S}]\n", ack)
	until(t, "acked", 10*time.Second, func() bool { return f.Stats.Acked.Load() == 1 })
}

// A stop in the middle of a flow leaves nothing waiting for ack_wait: whatever
// was not handled can be taken at once.
func TestDrainInFlow(t *testing.T) {
	const n = 60_000
	r := newRig(t)
	for i := range n {
		if _, err := r.js.PublishAsync("a.x", []byte(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	<-r.js.PublishAsyncComplete()
	const m = "name: f\nconcurrency: 4\ntriggers: [{stream: S, ack_wait: 60s}]\n"
	for range 3 {
		_, f, stop := r.run(m, ack)
		until(t, "a flow", 20*time.Second, func() bool { return f.Stats.Acked.Load() > 3000 })
		stop()
	}
	r.run(m, ack)
	until(t, "all done, long before ack_wait", 30*time.Second, func() bool { return r.outstanding("f") == 0 })
}

// The figures of a trigger are the durable's.
func TestLag(t *testing.T) {
	r := newRig(t)
	for i := range 50 {
		r.publish("a.x", fmt.Sprint(i))
	}
	release := make(chan struct{})
	c, f, _ := r.run("name: f\nconcurrency: 4\ntriggers: [{stream: S, max_ack_pending: 10}]\n", func(*host.Message) host.Outcome {
		<-release
		return host.Outcome{Disposition: host.Ack}
	})
	until(t, "lag", 10*time.Second, func() bool { s := c.State(); return s.Outstanding > 0 && int(s.Pending)+s.Outstanding == 50 })
	close(release)
	until(t, "no lag", 10*time.Second, func() bool { s := c.State(); return s.Outstanding == 0 && s.Pending == 0 && f.Stats.Acked.Load() == 50 })
}
