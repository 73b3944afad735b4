package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ledger is a workload of numbered messages, and the checks of its books: the
// function ledger inserts a row, adds to a total, publishes done.<n> and posts
// /<n>, all for message n.
type ledger struct {
	t    *testing.T
	dir  string // of the functions
	data string // of the host
	url  string // of the server
	nc   *nats.Conn
	js   jetstream.JetStream

	good, bad, exits []int
	redriven         bool

	// The outside world.
	begun  atomic.Int64 // requests
	slow   atomic.Int64 // how long its answers take, nanoseconds
	status atomic.Int64 // that it answers all with, unless it is 0

	mu     sync.Mutex
	posted map[int]int
}

// The functions: the ledger, and one that ends with its message, which has no
// database.
const (
	ledgerManifest = `name: ledger
triggers: [{stream: WORK, filter_subjects: [work.>], ack_wait: 3s, batch: {max: 20, wait: 20ms}}]
retry: {max_deliver: 5, backoff: [100ms]}
timeout: 10s
config: {url: %q}
grants:
  sqlite: {ledger: {mode: write}}
  publish: [done.*]
  http: [{origin: %q, methods: [POST]}]
`
	exitsManifest = `name: exits
triggers: [{stream: WORK, filter_subjects: [exit.>], ack_wait: 3s}]
retry: {max_deliver: 1, backoff: [100ms], breaker: off}
`
	relayManifest = `name: relay
triggers: [{stream: WORK, filter_subjects: [work.>], ack_wait: 3s}]
concurrency: 8
retry: {max_deliver: 5, backoff: [100ms]}
grants: {publish: [relayed.*]}
`
	ledgerStreams = `streams:
  - {name: WORK, subjects: [work.>, exit.>], max_age: 1h, replicas: %d}
  - {name: DONE, subjects: [done.*], max_age: 1h, duplicate_window: 10m, replicas: %d}
  - {name: RELAYED, subjects: [relayed.*], max_age: 1h, duplicate_window: 10m, replicas: %d}
`
)

var durables = []string{"ledger", "exits", "relay"}

// newLedger makes the folder of functions and the outside world.
func newLedger(t *testing.T, replicas int) *ledger {
	t.Helper()
	l := &ledger{t: t, dir: t.TempDir(), data: t.TempDir(), posted: map[int]int{}}
	outside := httptest.NewServer(http.HandlerFunc(l.post))
	t.Cleanup(outside.Close)
	for name, text := range map[string]string{
		"ledger.yaml": fmt.Sprintf(ledgerManifest, outside.URL, outside.URL), "exits.yaml": exitsManifest, "relay.yaml": relayManifest,
		"streams.yaml": fmt.Sprintf(ledgerStreams, replicas, replicas, replicas),
	} {
		if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, module := range map[string]string{"ledger": "ledger", "exits": "crash", "relay": "relay"} {
		path, err := filepath.Abs(filepath.Join(bin, "testers", module+".wasm"))
		if err == nil {
			err = os.Symlink(path, filepath.Join(l.dir, name+".wasm"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// post is the outside world: every seventh number is refused the first time.
func (l *ledger) post(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(strings.Trim(r.URL.Path, "/"))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	l.begun.Add(1)
	select {
	case <-time.After(time.Duration(l.slow.Load())): // its work
	case <-r.Context().Done():
	}
	if status := l.status.Load(); status != 0 {
		http.Error(w, "as the test wants it", int(status))
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.posted[n]++
	if n%7 == 0 && l.posted[n] == 1 {
		http.Error(w, "not yet", http.StatusServiceUnavailable)
	}
}

// posts is how many numbers the outside world has seen.
func (l *ledger) posts() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.posted)
}

// exists reports whether a stream is there.
func (l *ledger) exists(stream string) bool {
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Second)
	defer cancel()
	_, err := l.js.Stream(ctx, stream)
	return err == nil
}

// replace changes a file of the folder.
func (l *ledger) replace(file, old, with string) {
	l.t.Helper()
	path := filepath.Join(l.dir, file)
	b, err := os.ReadFile(path)
	if err == nil && !strings.Contains(string(b), old) {
		err = fmt.Errorf("%s has no %q", file, old)
	}
	if err == nil {
		err = os.WriteFile(path, []byte(strings.Replace(string(b), old, with, 1)), 0o644)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// killed moves a good message to the bad ones.
func (l *ledger) killed(n int) {
	l.good = slices.DeleteFunc(l.good, func(g int) bool { return g == n })
	l.bad = append(l.bad, n)
}

// reason is why a dead letter was given up on.
func (l *ledger) reason(subject string) string {
	l.t.Helper()
	s, err := l.js.Stream(l.t.Context(), "DLQ")
	if err != nil {
		l.t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(l.t.Context(), subject)
	if err != nil {
		l.t.Fatal(err)
	}
	return m.Header.Get("Pelton-Reason")
}

// connect connects the test to a server that may come and go.
func (l *ledger) connect(server string) {
	l.t.Helper()
	var err error
	l.url = server
	if l.nc, err = nats.Connect(server, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond)); err == nil {
		l.js, err = jetstream.New(l.nc)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(l.nc.Close)
}

// publish publishes message n until the stream has it.
func (l *ledger) publish(n int) {
	l.t.Helper()
	subject, body := l.book(n)
	publishUntil(l.t, l.js, subject, body)
}

// publishing publishes the messages from first up to before end while the test goes
// on, however often the server is away meanwhile; published waits until the stream has
// them.
func (l *ledger) publishing(first, end int) (published func()) {
	var subjects, bodies []string
	for n := first; n < end; n++ {
		subject, body := l.book(n)
		subjects, bodies = append(subjects, subject), append(bodies, body)
	}
	all := make(chan struct{})
	go func() {
		for i := 0; i < len(subjects) && l.t.Context().Err() == nil; {
			if publishOnce(l.t.Context(), l.js, subjects[i], bodies[i]) == nil {
				i++
			}
		}
		close(all)
	}()
	return func() {
		l.t.Helper()
		select {
		case <-all:
		case <-time.After(time.Minute):
			l.t.Fatalf("the stream has not got all messages from %d to %d", first, end)
		}
	}
}

// book writes down what message n is.
func (l *ledger) book(n int) (subject, body string) {
	subject, body = fmt.Sprintf("work.%d", n), strconv.Itoa(n)
	switch {
	case n%20 == 19:
		subject, body = fmt.Sprintf("exit.%d", n), "exit"
		l.exits = append(l.exits, n)
	case n%10 == 9:
		body = "bad " + body
		l.bad = append(l.bad, n)
	default:
		l.good = append(l.good, n)
	}
	return subject, body
}

// loopback permits the servers of the tests to named origins.
const loopback = "testdata/loopback.yaml"

// host is a host of the ledger, that dies where crash says.
func (l *ledger) host(log *os.File, args ...string) *host {
	exe, err := filepath.Abs(filepath.Join(bin, "testers", "pelton"))
	if err != nil {
		l.t.Fatal(err)
	}
	args = append([]string{"up", "--dir", l.dir, "--data", l.data, "--cache", cache, "--config", loopback, "--log-level", "warn"}, args...)
	return &host{t: l.t, exe: exe, log: log, args: args}
}

// settled waits until the functions have nothing left to do and the outbox is
// empty, for a while: a durable that is just being made anew has nothing either.
func (l *ledger) settled(limit time.Duration) {
	l.t.Helper()
	const steady = 2 * time.Second
	var left string
	var since time.Time // when there was nothing
	defer func() {
		if left != "" {
			l.t.Error(left)
		}
	}()
	until(l.t, "nothing left to do", limit, func() (nothing bool) {
		defer func() {
			if !nothing {
				since = time.Time{}
			} else if since.IsZero() {
				since = time.Now()
			}
			nothing = nothing && time.Since(since) >= steady
		}()
		for _, durable := range durables {
			ctx, cancel := context.WithTimeout(l.t.Context(), time.Second)
			c, err := l.js.Consumer(ctx, "WORK", durable)
			cancel()
			if err != nil {
				left = err.Error()
				return false
			}
			if info := c.CachedInfo(); info.NumPending+uint64(info.NumAckPending) > 0 {
				left = fmt.Sprintf("%s has %d pending and %d outstanding", durable, info.NumPending, info.NumAckPending)
				return false
			}
		}
		n := l.count("SELECT count(*) FROM _pelton_outbox")
		left = fmt.Sprintf("%d rows in the outbox", n)
		return n == 0
	})
	left = ""
}

// count reads one number of the database, as another program would; -1 when it
// cannot.
func (l *ledger) count(query string) (n int) {
	db, err := sql.Open("sqlite", "file:"+url.PathEscape(filepath.Join(l.data, "sqlite", "ledger.db"))+"?mode=ro&_pragma=busy_timeout(1000)")
	if err == nil {
		defer db.Close()
		err = db.QueryRow(query).Scan(&n)
	}
	if err != nil {
		return -1
	}
	return n
}

// check compares the books with what was published.
func (l *ledger) check() {
	l.t.Helper()
	sum := 0
	for _, n := range l.good {
		sum += n
		if got := l.count(fmt.Sprintf("SELECT count(*) FROM rows WHERE n = %d", n)); got != 1 {
			l.t.Errorf("%d rows of message %d, want 1", got, n)
		}
		l.mu.Lock()
		if l.posted[n] == 0 {
			l.t.Errorf("message %d was not posted", n)
		}
		l.mu.Unlock()
	}
	if got := l.count("SELECT count(*) FROM rows"); got != len(l.good) {
		l.t.Errorf("%d rows, want %d", got, len(l.good))
	}
	if got := l.count("SELECT v FROM total"); got != sum {
		l.t.Errorf("total is %d, want %d", got, sum)
	}
	want := map[string]int{}
	for _, n := range l.good {
		want[fmt.Sprintf("done.%d", n)] = 1
	}
	l.compare("DONE", want)
	want = map[string]int{}
	for _, n := range append(slices.Clone(l.good), l.bad...) {
		want[fmt.Sprintf("relayed.%d", n)] = 1
	}
	if !l.redriven { // what is redriven comes to all functions
		l.compare("RELAYED", want)
	}
	want = map[string]int{}
	for _, n := range l.bad {
		want[fmt.Sprintf("dlq.work.%d", n)] = 1
	}
	for _, n := range l.exits {
		want[fmt.Sprintf("dlq.exit.%d", n)] = 1
	}
	l.compare("DLQ", want)
}

// compare compares how many messages a stream has on each subject.
func (l *ledger) compare(stream string, want map[string]int) {
	l.t.Helper()
	s, err := l.js.Stream(l.t.Context(), stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) && len(want) == 0 {
		return
	}
	if err != nil {
		l.t.Errorf("stream %s: %v", stream, err)
		return
	}
	info, err := s.Info(l.t.Context(), jetstream.WithSubjectFilter(">"))
	if err != nil {
		l.t.Fatal(err)
	}
	got := info.State.Subjects
	for subject, n := range want {
		if got[subject] != uint64(n) {
			l.t.Errorf("%d messages on %s, want %d", got[subject], subject, n)
		}
	}
	for subject, n := range got {
		if want[subject] == 0 {
			l.t.Errorf("%d messages on %s, want none", n, subject)
		}
	}
}

// logFile is where hosts write to; its end is shown when the test fails.
func logFile(t *testing.T) *os.File {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		log.Close()
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("the hosts' log ends with:\n%s", b[max(0, len(b)-4000):])
		}
	})
	return log
}
