package trigger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime"
)

// mortal is a host of three functions that can be killed as a process is: from
// then on it settles nothing, and only its marks are left, as they were.
type mortal struct {
	world   *world
	nc      *nats.Conn
	js      jetstream.JetStream
	marks   string
	end     context.CancelFunc
	group   sync.WaitGroup
	dead    chan struct{}
	killing sync.Once

	mu      sync.Mutex
	running map[string]int
}

// world is what is true of the messages, whatever hosts believe.
type world struct {
	rig      *rig
	culprits map[string]bool // their handlers kill the host
	crashAt  map[int]bool    // handler calls at which the host dies of something else

	last [mortals]uint64 // of each function's messages

	mu      sync.Mutex
	calls   int
	handled map[string]int
	alone   map[string]bool // that were the only one when a host died
}

const mortals = 3 // functions of a host

func (w *world) host(t *rapid.T, marks string) *mortal {
	nc, err := w.rig.s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	m := &mortal{world: w, nc: nc, marks: marks, dead: make(chan struct{}), running: map[string]int{}}
	if m.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.end = cancel
	leases, attempts, quiet := NewLeases(), NewAttempts(m.js), &Quiet{}
	m.group.Go(func() { leases.Run(ctx) })
	for i := range mortals {
		text := fmt.Sprintf("name: f%d\nconcurrency: 2\ntriggers: [{stream: M, filter_subjects: [m.%d.*], batch: {max: %d, wait: 1ms}}]\nretry: {max_deliver: 2, backoff: [1ms]}\n", i, i, 1+4*i)
		manifest, err := manifests.Decode("f.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		log := zerolog.Nop()
		f := runtime.New(manifest, "", invoker(m.handle), &host.Grants{}, log)
		c := NewConsumer(ConsumerConfig{JS: m.js, Function: manifest.Name, Trigger: manifest.Triggers[0], Concurrency: 2, Dispatcher: f, Leases: leases,
			Attempts: attempts, Quiet: quiet, Owners: NewOwners(m.js, "h1"), Marks: filepath.Join(marks, manifest.Name), Log: log,
			DeadLetters: &DeadLetters{JS: m.js, Config: manifest.DeadLetter, Function: manifest.Name}})
		m.group.Go(func() { c.Run(ctx, ctx) })
	}
	return m
}

type invoker func(c *host.Call) error

func (f invoker) Invoke(c *host.Call) error { return f(c) }

// handle is the handler of all functions: a culprit kills the host, the others
// are noted.
func (m *mortal) handle(c *host.Call) error {
	subjects := make([]string, len(c.Deliveries()))
	for i, d := range c.Deliveries() {
		subjects[i] = d.Message.Subject
	}
	m.run(subjects, 1)
	defer m.run(subjects, -1)
	w := m.world
	for i, s := range subjects {
		w.mu.Lock()
		w.calls++
		dies := w.culprits[s] || w.crashAt[w.calls]
		w.mu.Unlock()
		if dies {
			m.kill()
		}
		select {
		case <-m.dead:
			return errors.New("dead")
		default:
		}
		w.mu.Lock()
		w.handled[s]++
		w.mu.Unlock()
		id := host.BatchID + 1 + uint32(i)
		if err := errors.Join(c.Begin(id), c.End(id, host.Outcome{Disposition: host.Ack})); err != nil {
			return err
		}
	}
	return nil
}

func (m *mortal) run(subjects []string, by int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range subjects {
		if m.running[s] += by; m.running[s] == 0 {
			delete(m.running, s)
		}
	}
}

// kill has the host be dead at once.
func (m *mortal) kill() {
	m.killing.Do(func() {
		m.mu.Lock()
		if len(m.running) == 1 {
			for s := range m.running {
				m.world.mu.Lock()
				m.world.alone[s] = true
				m.world.mu.Unlock()
			}
		}
		m.mu.Unlock()
		m.nc.Close()
		os.CopyFS(m.marks+" left", os.DirFS(m.marks)) // the world checks what becomes of it
		close(m.dead)
		m.end()
	})
}

// No message is given up on that did not fail alone, and each that ends the host
// is, whatever hosts die of besides, with several functions on a host and a server
// that forgets how often it delivered what.
func TestSuspects(t *testing.T) {
	r := newRig(t)
	r.stream(jetstream.StreamConfig{Name: "M", Subjects: []string{"m.>"}})
	rapid.Check(t, func(t *rapid.T) {
		w := &world{rig: r, culprits: map[string]bool{}, crashAt: map[int]bool{}, handled: map[string]int{}, alone: map[string]bool{}}
		subjects := w.fill(t)
		for range rapid.IntRange(0, 2).Draw(t, "culprits") {
			w.culprits[rapid.SampledFrom(subjects).Draw(t, "culprit")] = true
		}
		for range rapid.IntRange(0, 3).Draw(t, "crashes") {
			w.crashAt[rapid.IntRange(1, 60).Draw(t, "crash")] = true
		}
		dir, err := os.MkdirTemp("", "suspects")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		w.live(t, dir)
		letters := w.letters(t)
		for _, s := range subjects {
			switch {
			case w.culprits[s] && !letters[s]:
				t.Errorf("%s ends the host and was not given up on", s)
			case letters[s] && !w.alone[s]:
				t.Errorf("%s was given up on and never failed alone", s)
			case !letters[s] && w.handled[s] == 0:
				t.Errorf("%s was neither handled nor given up on", s)
			}
		}
	})
}

// fill makes the world as it was, with some messages.
func (w *world) fill(t *rapid.T) (subjects []string) {
	ctx := context.Background()
	for _, name := range []string{"M", DeadLetterStream, "KV_" + AttemptsBucket, "KV_" + OwnersBucket} {
		s, err := w.rig.js.Stream(ctx, name)
		if err == nil {
			err = s.Purge(ctx)
		}
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Fatal(err)
		}
	}
	for i := range mortals {
		if err := w.rig.js.DeleteConsumer(ctx, "M", fmt.Sprintf("f%d", i)); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			t.Fatal(err)
		}
	}
	for i := range rapid.IntRange(5, 40).Draw(t, "messages") {
		s := fmt.Sprintf("m.%d.%d", i%mortals, i)
		ack, err := w.rig.js.Publish(ctx, s, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.last[i%mortals] = ack.Sequence
		subjects = append(subjects, s)
	}
	return subjects
}

// live has hosts follow each other until nothing is left to do.
func (w *world) live(t *rapid.T, dir string) {
	deadline := time.Now().Add(time.Minute)
	for life := 0; ; life++ {
		m := w.host(t, filepath.Join(dir, fmt.Sprint(life), "marks"))
		done := w.wait(m, deadline)
		m.end()
		m.group.Wait()
		m.nc.Close()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not done after %d lives", life)
		}
		// The next one finds the marks of this one.
		if err := os.MkdirAll(filepath.Join(dir, fmt.Sprint(life+1)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(m.marks+" left", filepath.Join(dir, fmt.Sprint(life+1), "marks")); err != nil {
			t.Fatal(err)
		}
		for i := range mortals {
			// As a server does that has died with the host: it forgets what was under way.
			if err := w.forget(fmt.Sprintf("f%d", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// forget has the server forget what of a durable was under way. A durable that is
// just being made is found before it listens to resets: such a one is asked again.
func (w *world) forget(durable string) error {
	for try := 1; ; try++ {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := w.rig.js.Consumer(ctx, "M", durable)
		if err == nil { // otherwise the server would not answer
			_, err = w.rig.js.ResetConsumer(ctx, "M", durable)
		}
		cancel()
		switch {
		case err == nil, errors.Is(err, jetstream.ErrConsumerNotFound):
			return nil
		case try == 10 || !errors.Is(err, context.DeadlineExceeded):
			return err
		}
	}
}

// wait waits until the host is dead, or nothing is left to do.
func (w *world) wait(m *mortal, deadline time.Time) (done bool) {
	for time.Now().Before(deadline) {
		select {
		case <-m.dead:
			return false
		case <-time.After(5 * time.Millisecond):
		}
		left := 0
		for i := range mortals {
			c, err := w.rig.js.Consumer(context.Background(), "M", fmt.Sprintf("f%d", i))
			if err != nil {
				left++
				continue
			}
			// A durable that is just being made has nothing pending, for the server has
			// not counted yet.
			info := c.CachedInfo()
			if left += int(info.NumPending) + info.NumAckPending; info.Delivered.Stream < w.last[i] {
				left++
			}
		}
		if left == 0 {
			return true
		}
	}
	return false
}

// letters is what was given up on.
func (w *world) letters(t *rapid.T) map[string]bool {
	all := map[string]bool{}
	s, err := w.rig.js.Stream(context.Background(), DeadLetterStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return all
	}
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(context.Background(), jetstream.WithSubjectFilter(">"))
	if err != nil {
		t.Fatal(err)
	}
	for subject := range info.State.Subjects {
		all[subject[len("dlq."):]] = true
	}
	return all
}
