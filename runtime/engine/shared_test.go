package engine

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pelton-run/pelton/host"
)

// slow is an http capability whose answers take as long as the request says.
type slow struct{}

func (slow) Keyed() bool { return false }
func (slow) Do(ctx context.Context, r *host.Request) (*host.HTTPResponse, error) {
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil, err
	}
	us, _ := strconv.Atoi(u.Query().Get("us"))
	v, _ := strconv.Atoi(u.Query().Get("v"))
	timer := time.NewTimer(time.Duration(us) * time.Microsecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return &host.HTTPResponse{Status: 200, Body: []byte(strconv.Itoa(v*31 + 7))}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

var manyLimits = host.Limits{HTTPRequests: 10_000, Buffers: 1 << 24, Tickets: 1000}

// sharedPool makes a pool whose instances take many calls.
func sharedPool(t *testing.T, most int) *Pool {
	t.Helper()
	p := newPool(t, newEngine(t), "conformance", grantAll, Settings{Max: most, Shared: true})
	if !p.Shared() {
		t.Fatal("the conformance guest cannot be shared")
	}
	return p
}

// outcome is what became of one call.
type outcome struct {
	host.Outcome
	log  string
	err  error
	took time.Duration
}

// send runs one message in a shared pool, again as the runtime does it when
// others were in the instance that went down. tries counts the runs.
func send(ctx context.Context, p *Pool, timeout time.Duration, body string) (o outcome, tries int) {
	company, start := 0, time.Now()
	for {
		log := &record{}
		c := host.NewCall(ctx, "f", &host.Grants{HTTP: slow{}}, manyLimits, log, []*host.Message{{Subject: "a.b", Stream: "S", NumDelivered: 1, Data: []byte(body)}})
		c.SetTimeout(timeout, errors.New("the test's timeout"))
		c.Company = company
		err := p.Invoke(c)
		tries++
		c.Finish()
		c.Close()
		var crowded *host.Crowded
		if errors.As(err, &crowded) {
			company = crowded.Company
			continue
		}
		return outcome{c.Deliveries()[0].Outcome, log.String(), err, time.Since(start)}, tries
	}
}

// sendAll sends bodies at once and returns what became of each.
func sendAll(t *testing.T, p *Pool, timeout time.Duration, bodies ...string) []outcome {
	t.Helper()
	all := make([]outcome, len(bodies))
	var group sync.WaitGroup
	for i, b := range bodies {
		group.Go(func() { all[i], _ = send(t.Context(), p, timeout, b) })
	}
	group.Wait()
	return all
}

func repeat(body string, n int) []string {
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = body
	}
	return bodies
}

// Deliveries that wait do so beside each other, in one instance.
func TestManyInFlight(t *testing.T) {
	p := sharedPool(t, 1)
	start := time.Now()
	for i, o := range sendAll(t, p, 20*time.Second, repeat("wait 50000 50000 50000", 300)...) {
		if o.err != nil || o.Disposition != host.Ack {
			t.Fatalf("%d: %+v", i, o)
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("300 deliveries of 150 ms took %s: they ran one after another", took)
	}
	if p.alive != 1 {
		t.Errorf("%d instances, want 1", p.alive)
	}
}

// A guest is a Go program like any other: a thousand random ones of goroutines,
// channels, timers and operations have the outcome that they have natively.
func TestPrograms(t *testing.T) {
	golden, err := os.ReadFile("../../functions/program/testdata/outcomes.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Fields(strings.ReplaceAll(string(golden), " ", "/"))
	p := sharedPool(t, 2)
	var group sync.WaitGroup
	places := make(chan struct{}, 50)
	for seed, w := range want {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			o, _ := send(t.Context(), p, 60*time.Second, fmt.Sprintf("program %d", seed))
			if got := "0 " + strings.ReplaceAll(w, "/", " "); o.err != nil || !strings.HasPrefix(o.log, got) {
				t.Errorf("program %d: %q, %v, %+v; want %q", seed, o.log, o.err, o.Outcome, got)
			}
		})
	}
	group.Wait()
	if len(want) != 1000 {
		t.Errorf("%d programs, want 1000", len(want))
	}
}

// The same programs come out the same in a batch, where the guest's thread waits
// in the host.
func TestProgramsInBatches(t *testing.T) {
	golden, err := os.ReadFile("../../functions/program/testdata/outcomes.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(golden)), "\n")[:100]
	p := newPool(t, newEngine(t), "conformance", grantAll, Settings{Max: 1})
	for seed, w := range want {
		log := &record{}
		c := host.NewCall(t.Context(), "f", &host.Grants{HTTP: slow{}}, manyLimits, log, []*host.Message{{Subject: "a.b", Stream: "S", Data: fmt.Appendf(nil, "program %d", seed)}})
		c.SetTimeout(60*time.Second, errors.New("the test's timeout"))
		if err := p.Invoke(c); err != nil || !strings.HasPrefix(log.String(), "0 "+w) {
			t.Errorf("program %d: %q, %v; want %q", seed, log, err, w)
		}
		c.Close()
	}
}

// One bad delivery does not cost its neighbours their outcome, and only it fails.
func TestNeighbours(t *testing.T) {
	tests := []struct {
		bad  string
		want error
	}{
		{"exit", ErrExit},
		{"forever", ErrDeadlock},
		{"stubborn", ErrTimeout},
		{"panic now", nil}, // the SDK makes it a nak
		{"spin 30s", ErrTimeout},
		{"nap-spin", ErrTimeout}, // it wakes by a timer of its own: nobody names it
	}
	for _, tt := range tests {
		t.Run(tt.bad, func(t *testing.T) {
			p := sharedPool(t, 1)
			bodies := append(repeat("wait 20000 20000", 20), tt.bad)
			for i, o := range sendAll(t, p, 700*time.Millisecond, append(bodies, repeat("wait 20000", 20)...)...) {
				if i == 20 {
					if !errors.Is(o.err, tt.want) || o.Disposition == host.Ack {
						t.Errorf("%s: %+v, want %v", tt.bad, o, tt.want)
					}
					continue
				}
				if o.err != nil || o.Disposition != host.Ack {
					t.Errorf("neighbour %d of %s: %+v, want ack", i, tt.bad, o)
				}
			}
		})
	}
}

// The context of a delivery ends at its timeout; the handler may still return.
func TestTimeIsOver(t *testing.T) {
	p := sharedPool(t, 1)
	for _, body := range []string{"until-done", "wait 10000000", "spin-until-done"} {
		o := sendAll(t, p, 100*time.Millisecond, body)[0]
		if o.err != nil || o.Disposition != host.Nak || o.took < 100*time.Millisecond || o.took > 100*time.Millisecond+Grace {
			t.Errorf("%s: %+v, want the handler's own error after 100ms", body, o)
		}
	}
}

// What a delivery takes of the instance is not taken off its neighbours' time.
func TestTimeOfOthers(t *testing.T) {
	p := sharedPool(t, 1)
	all := sendAll(t, p, 500*time.Millisecond, "wait 20000 20000 20000", "spin 400ms", "spin 400ms", "spin 400ms", "wait 20000 20000")
	for i, o := range all {
		if o.err != nil || o.Disposition != host.Ack {
			t.Errorf("%d: %+v, want ack", i, o)
		}
	}
}

// Handlers share what a program shares.
func TestSharedMutex(t *testing.T) {
	p := sharedPool(t, 1)
	for i, o := range sendAll(t, p, 10*time.Second, repeat("lock", 30)...) {
		if o.err != nil || o.Disposition != host.Ack {
			t.Errorf("%d: %+v", i, o)
		}
	}
}

// While an instance is held, another is made; no more than the most. Calls that come
// while the first one is being made go into it together, and none is held then: some
// rounds may pass.
func TestGrowth(t *testing.T) {
	const most, rounds = 2, 20
	p := sharedPool(t, most)
	for round := 1; ; round++ {
		for i, o := range sendAll(t, p, 10*time.Second, "spin 200ms", "spin 200ms", "spin 200ms", "spin 200ms") {
			if o.err != nil || o.Disposition != host.Ack {
				t.Errorf("%d: %+v", i, o)
			}
		}
		p.mu.Lock()
		alive, idle := p.alive, len(p.idle)
		p.mu.Unlock()
		switch {
		case alive > most || idle != alive || round == rounds && alive != most:
			t.Fatalf("after %d rounds %d instances, %d of them idle; want %d, all idle", round, alive, idle, most)
		case alive == most && round > 2: // one more would have been made
			return
		}
	}
}

// When the host cannot wait any longer, what is parked ends and nothing is left.
func TestStop(t *testing.T) {
	p := sharedPool(t, 1)
	before := runtime.NumGoroutine()
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if o, _ := send(ctx, p, time.Minute, "wait 60000000"); o.Disposition == host.Ack {
				t.Errorf("acked: %+v", o)
			}
		})
	}
	for n := 0; n < 20; time.Sleep(time.Millisecond) {
		n = runtime.NumGoroutine() - before - 20
	}
	stop()
	group.Wait()
}

// An instance whose memory has passed its mark is exchanged, and one that cannot
// be shared is not.
func TestRecycled(t *testing.T) {
	p := newPool(t, newEngine(t), "conformance", grantAll, Settings{Max: 1, Shared: true, Memory: 64 << 20})
	sendAll(t, p, 10*time.Second, "hog 50000000")
	if o := sendAll(t, p, 10*time.Second, "found")[0]; o.err != nil || !strings.HasPrefix(o.log, "0 0 false ") {
		t.Errorf("%+v, want an instance that nothing was left in", o)
	}
	module, err := newEngine(t).Compile(t.Context(), NewBinary((&assembly{bodies: [][]byte{{0x01}}}).bytes()), manifest(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := NewPool(module, Settings{Max: 1, Memory: 1 << 20, Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, _, err := invoke(t, plain, time.Second, "x"); err != nil || plain.Shared() {
		t.Errorf("a guest without pelton_start: shared %v, %v", plain.Shared(), err)
	}
}

// CPU and host calls are budgets of one delivery.
func TestBudgets(t *testing.T) {
	p := sharedPool(t, 1)
	for _, tt := range []struct {
		body   string
		limits host.Limits
		says   string
	}{
		{"spin 10s", host.Limits{CPU: 50 * time.Millisecond}, "limits.cpu of 50ms"},
		{"spin-until-done", host.Limits{HostCalls: 1000}, "limits.host_calls of 1000"}, // it asks each time
		{"wait 1000 1000 1000", host.Limits{HTTPRequests: 2, Tickets: 9, Buffers: 1 << 20}, "limits.http_requests of 2"},
		{"wait 1000", host.Limits{HTTPRequests: 2, Buffers: 1 << 20}, "limits.tickets is 0"},
	} {
		c := host.NewCall(t.Context(), "f", &host.Grants{HTTP: slow{}}, tt.limits, &record{}, []*host.Message{{Subject: "a.b", Data: []byte(tt.body)}})
		c.SetTimeout(5*time.Second, errors.New("the test's timeout"))
		err := p.Invoke(c)
		c.Finish()
		got := c.Deliveries()[0].Outcome.Reason
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tt.says) {
			t.Errorf("%s: %q, want %q", tt.body, got, tt.says)
		}
		c.Close()
	}
}

// A guest that computes after it has slept is stopped as any other, and what the
// host does for one is time too.
func TestNobodyNamed(t *testing.T) {
	for _, body := range []string{"nap-spin", "random"} {
		p := sharedPool(t, 1)
		o := sendAll(t, p, 200*time.Millisecond, body)[0]
		if !errors.Is(o.err, ErrTimeout) || o.took > 200*time.Millisecond+Grace+time.Second {
			t.Errorf("%s: %+v, want a timeout", body, o)
		}
	}
	p := sharedPool(t, 1)
	if o := sendAll(t, p, 20*time.Second, "shout 20000000")[0]; o.err != nil || o.took > 10*time.Second {
		t.Errorf("20 MB without an end of line: %v after %s", o.err, o.took)
	}
}

// What runs apart after an instance went down holds nobody else up.
func TestLaneApart(t *testing.T) {
	p := sharedPool(t, 1)
	done := make(chan outcome)
	go func() {
		log := &record{}
		c := host.NewCall(t.Context(), "f", &host.Grants{HTTP: slow{}}, manyLimits, log, []*host.Message{{Subject: "a.b", Data: []byte("wait 3000000")}})
		c.SetTimeout(20*time.Second, errors.New("the test's timeout"))
		c.Company = 1
		err := p.Invoke(c)
		c.Finish()
		c.Close()
		done <- outcome{Outcome: c.Deliveries()[0].Outcome, err: err}
	}()
	for lane := false; !lane; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		lane = p.lane
		p.mu.Unlock()
	}
	for range 5 {
		if o := sendAll(t, p, 10*time.Second, "ack")[0]; o.err != nil || o.took > time.Second {
			t.Errorf("a call beside the lane: %+v", o)
		}
	}
	if o := <-done; o.err != nil || o.Disposition != host.Ack {
		t.Errorf("the one apart: %+v", o)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lane || p.alive > 1 {
		t.Errorf("lane %v, %d instances; want none and at most 1", p.lane, p.alive)
	}
}

// A goroutine that is left behind with an operation ends when that is refused.
func TestAbandoned(t *testing.T) {
	p := sharedPool(t, 1)
	sendAll(t, p, 10*time.Second, "wait 1000")
	count := func() int {
		_, n, _ := strings.Cut(sendAll(t, p, 10*time.Second, "goroutines")[0].log, "0 ")
		v, _ := strconv.Atoi(strings.Fields(n)[0])
		return v
	}
	before := count()
	for range 50 {
		sendAll(t, p, 10*time.Second, "abandon")
	}
	sendAll(t, p, 10*time.Second, "wait 1000 1000") // so that the guest is told
	if after := count(); after > before+5 {
		t.Errorf("%d goroutines after 50 that were abandoned, %d before", after, before)
	}
}
