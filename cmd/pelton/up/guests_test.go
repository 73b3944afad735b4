package up

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// conforming is a manifest for the conformance guest, which shares its instances:
// it writes to no database.
const conforming = `
name: many
triggers: [{stream: S, filter_subjects: [s.many.>], ack_wait: 3s}]
concurrency: 200
instances: {max: 1}
timeout: 20s
retry: {max_deliver: 2, backoff: [100ms]}
grants:
  sqlite: {test: {mode: read}}
  http: [{origin: %q}]
  blob: {test: {mode: write}}
  kv: {TEST: {mode: write, create: true}}
  publish: [out.>]
`

const testStreams = "streams: [{name: S, subjects: [s.>], max_age: 1h}]\n"

// lateOrigin answers after as long as it is told.
func lateOrigin(t *testing.T, late time.Duration) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(late):
		case <-r.Context().Done():
		}
		fmt.Fprint(w, "late")
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// WAS-1: endless loops end in their time and grace, are retried by the schedule
// and become dead letters; another function goes on meanwhile, and nothing of
// them stays.
func TestEndlessLoops(t *testing.T) {
	const loops = 4
	f := newFolder(t).write("streams.yaml", testStreams).
		add("loops", "testers/crash", "name: loops\ntriggers: [{stream: S, filter_subjects: [s.loops.>]}]\nconcurrency: 4\ninstances: {max: 4}\ntimeout: 1s\nretry: {max_deliver: 2, backoff: [100ms]}\n").
		add("quick", "testers/nowork", "name: quick\ntriggers: [{request: quick}]\n")
	b := start(t, f, nil)
	b.publish("s.other", "x") // the stream is there
	quick := func() time.Duration {
		begin := time.Now()
		if _, err := b.nc.Request("quick", nil, 10*time.Second); err != nil {
			t.Errorf("the other function: %v", err)
		}
		return time.Since(begin)
	}
	until(t, "the other function answers", 10*time.Second, func() bool {
		_, err := b.nc.Request("quick", nil, time.Second)
		return err == nil
	})
	goroutines := runtime.NumGoroutine()
	for i := range loops {
		b.publish(fmt.Sprintf("s.loops.%d", i), "loop")
	}
	var late []time.Duration
	begin := time.Now()
	for b.figures("loops").DeadLetters < loops && time.Since(begin) < 40*time.Second {
		late = append(late, quick())
		time.Sleep(20 * time.Millisecond) // 50 a second
	}
	slices.Sort(late)
	if p99 := late[len(late)*99/100]; p99 > 500*time.Millisecond {
		t.Errorf("the other function's p99 is %s", p99)
	}
	letters := b.letters("loops")
	for i := range loops {
		if l := letters[fmt.Sprintf("dlq.s.loops.%d", i)]; !strings.Contains(l.reason, "timeout") || l.deliveries != "2" {
			t.Errorf("loop %d: dead letter %+v, want a timeout after two deliveries", i, l)
		}
	}
	const workers = 2 * loops                                                                                                          // that wait for more
	until(t, "the loops' goroutines are gone", 10*time.Second, func() bool { return runtime.NumGoroutine() <= goroutines+workers+10 }) // and the server has streams of ours by now
}

// Hundreds of messages wait beside each other in one instance; one among them
// that ends its program costs the others nothing but time.
func TestManyWait(t *testing.T) {
	const n = 300
	url := lateOrigin(t, 300*time.Millisecond)
	f := newFolder(t).write("streams.yaml", testStreams).add("many", "testers/conformance", fmt.Sprintf(conforming, url))
	b := start(t, f, nil)
	begin := time.Now()
	for i := range n {
		body := "fetch " + url
		if i == n/2 {
			body = "exit"
		}
		b.publish(fmt.Sprintf("s.many.%d", i), body)
	}
	g := b.done("many", n)
	if g.Acked != n-1 || g.DeadLetters != 1 || g.Redelivered != 1 {
		t.Errorf("%d acked, %d dead letters, %d redelivered; want all but one, and only that one again: %+v", g.Acked, g.DeadLetters, g.Redelivered, g.LastError)
	}
	if took := time.Since(begin); took > 25*time.Second {
		t.Errorf("%d messages of 300 ms took %s: they waited one after another", n, took)
	}
}

// A host that stops while handlers wait gives their messages back; the next one
// does them all.
func TestStopWhileWaiting(t *testing.T) {
	const n = 50
	url := lateOrigin(t, 700*time.Millisecond)
	f := newFolder(t).write("streams.yaml", testStreams).add("many", "testers/conformance", fmt.Sprintf(conforming, url))
	data := t.TempDir()
	first := start(t, f, func(c *Config) { c.Data, c.Grace = data, 50*time.Millisecond })
	for i := range n {
		first.publish(fmt.Sprintf("s.many.%d", i), "fetch "+url)
	}
	until(t, "handlers wait", 10*time.Second, func() bool { return first.figures("many").InFlight == n })
	acked := int(first.figures("many").Acked)
	first.nc.Close()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := start(t, f, func(c *Config) { c.Data = data })
	second.done("many", n-acked)
	if g := second.figures("many"); g.DeadLetters > 0 {
		t.Errorf("%d dead letters: %+v", g.DeadLetters, g.LastError)
	}
}
