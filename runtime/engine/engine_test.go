package engine

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cacheDir is shared by the tests of all packages: a guest is compiled once.
const cacheDir = "../../bin/testers/cache"

// guest reads a guest that make testers builds.
func guest(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../bin/testers", name+".wasm"))
	if err != nil {
		t.Fatalf("%v; run make testers", err)
	}
	return b
}

const grantAll = `
grants:
  sqlite: {test: {mode: write}}
  http: [{origin: "http://test.example"}]
  blob: {test: {mode: write}}
  kv: {TEST: {mode: write}}
  publish: [out.>]
`

func manifest(t *testing.T, extra string) *manifests.Manifest {
	t.Helper()
	m, err := manifests.Decode("f.yaml", []byte("name: f\ntriggers: [{stream: S}]\n"+extra))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newEngine(t *testing.T) *Engine {
	t.Helper()
	e, err := New(context.Background(), Config{CacheDir: cacheDir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(context.Background()) })
	return e
}

func newPool(t *testing.T, e *Engine, name, extra string, s Settings) *Pool {
	t.Helper()
	module, err := e.Compile(context.Background(), NewBinary(guest(t, name)), manifest(t, extra))
	if err != nil {
		t.Fatal(err)
	}
	if s.Memory == 0 {
		s.Memory = 64 << 20
	}
	p, err := NewPool(module, s)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Try(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// record keeps the log of a guest.
type record struct {
	mu    sync.Mutex
	lines []string
}

func (r *record) Log(m *host.Message, level int, text string, attrs [][2]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf("%d %s %v", level, text, attrs))
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

var limits = host.Limits{HTTPRequests: 10, Buffers: 1 << 20, Publishes: 10, PublishSize: 1 << 20, Rows: host.RowLimit{Rows: 100, Bytes: 1 << 16}, Response: 1 << 16, Blob: 1 << 20, Tickets: 10}

func call(ctx context.Context, log *record, bodies ...string) *host.Call {
	return callLimited(ctx, log, limits, bodies...)
}

func callLimited(ctx context.Context, log *record, limits host.Limits, bodies ...string) *host.Call {
	var messages []*host.Message
	for i, b := range bodies {
		messages = append(messages, &host.Message{
			Trigger: "events", Subject: "a.b", Stream: "S", Consumer: "c", StreamSeq: uint64(7 + i), NumDelivered: 1,
			Headers: map[string][]string{"X-Trace": {"a", "c"}, "x-trace": {"b"}}, Data: []byte(b), Timestamp: time.Unix(1, 0),
		})
	}
	return host.NewCall(ctx, "f", &host.Grants{}, limits, log, messages)
}

// invoke runs one message and returns what became of it.
func invoke(t *testing.T, p *Pool, timeout time.Duration, body string) (host.Outcome, string, error) {
	t.Helper()
	log := &record{}
	c := call(t.Context(), log, body)
	defer c.Close()
	c.SetTimeout(timeout, errors.New("the test's timeout"))
	err := p.Invoke(c)
	c.Finish()
	return c.Deliveries()[0].Outcome, log.String(), err
}

func TestConformance(t *testing.T) {
	p := newPool(t, newEngine(t), "conformance", grantAll, Settings{Max: 1, Env: map[string]string{"greeting": "hällo"}})
	tests := []struct {
		body, log, reason string
		disposition       host.Disposition
		delay             time.Duration
	}{
		{"ack", "0 ok [[command ack] [trigger events]]", "", host.Ack, 0},
		{"", "0 ok", "", host.Ack, 0},
		{"fail on purpose", "", "failed: on purpose", host.Nak, 0},
		{"term now", "", "given up: now", host.Term, 0},
		{"delay 1500ms", "", "later", host.Nak, 1500 * time.Millisecond},
		{"panic there", "", "panic: told to: there", host.Nak, 0},
		{"len", "0 3 ", "", host.Ack, 0},
		{"env greeting", "0 hällo", "", host.Ack, 0},
		{"header X-Trace", "0 a,c ", "", host.Ack, 0},
		{"header x-trace", "0 b ", "", host.Ack, 0},
		{"where", "0 events S c 7 1 ", "", host.Ack, 0},
		{"now", fmt.Sprintf("0 %d", time.Now().Unix()/100), "", host.Ack, 0},
		{"sleep 20ms", "0 slept", "", host.Ack, 0},
		{"exec SELECT 1", "", "errno 1: database \"test\" is not granted", host.Term, 0},
		{"fetch http://x", "", "errno 1: http is not granted", host.Term, 0},
		{"publish out.x y", "", "errno 1: publish is not granted", host.Term, 0},
		{"blob k", "", "errno 1: blob store \"test\" is not granted", host.Term, 0},
		{"kv k", "", "errno 1: kv bucket \"TEST\" is not granted", host.Term, 0},
	}
	for _, tt := range tests {
		o, log, err := invoke(t, p, 10*time.Second, tt.body)
		if err != nil {
			t.Errorf("%s: %v", tt.body, err)
			continue
		}
		if o.Disposition != tt.disposition || o.Delay != tt.delay || o.Reason != tt.reason || !strings.Contains(log, tt.log) {
			t.Errorf("%s: got %+v with log %q, want %s %s %q with log %q", tt.body, o, log, tt.disposition, tt.delay, tt.reason, tt.log)
		}
	}
}

// A batch is read in one call, and each message has its own outcome.
func TestBatch(t *testing.T) {
	p := newPool(t, newEngine(t), "conformance", grantAll, Settings{Max: 1})
	log := &record{}
	bodies := []string{"ack", "fail x", "panic y", "term z", "ack " + strings.Repeat("long ", 20_000)}
	c := call(t.Context(), log, bodies...)
	defer c.Close()
	if err := p.Invoke(c); err != nil {
		t.Fatal(err)
	}
	for i, want := range []host.Disposition{host.Ack, host.Nak, host.Nak, host.Term, host.Ack} {
		if got := c.Deliveries()[i].Outcome.Disposition; got != want {
			t.Errorf("delivery %d: %s, want %s", i, got, want)
		}
	}
}

// Whatever takes an invocation down ends it in time, says why, and leaves the
// next one a fresh instance.
func TestCrashes(t *testing.T) {
	p := newPool(t, newEngine(t), "crash", "", Settings{Max: 1})
	tests := []struct {
		body string
		want error
		says string
	}{
		{"exit", ErrExit, "status 0"},
		{"goroutine-panic", ErrTrap, "panic: out of reach"},
		{"deadlock", ErrDeadlock, "nothing can bring about"},
		{"loop", ErrTimeout, ""},
		{"hour", ErrTimeout, ""},
		{"grow", ErrTrap, "out of memory"},
		{"wild-high", ErrTrap, "pointer 4294967280 with length 4294967295"},
		{"wild-low", ErrTrap, "pointer 0 with length 4294967295"},
		{"wild-edge", ErrTrap, "pointer 4294967295 with length 2"},
		{"deep", nil, ""}, // Go ends it itself: its stack is in its memory
	}
	for _, tt := range tests {
		timeout := 500 * time.Millisecond
		if tt.body == "grow" {
			timeout = 20 * time.Second // the memory ends it, not the clock
		}
		start := time.Now()
		_, _, err := invoke(t, p, timeout, tt.body)
		if tt.want == nil && err == nil || tt.want != nil && !errors.Is(err, tt.want) || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %v that says %q", tt.body, err, tt.want, tt.says)
		}
		if errors.Is(tt.want, ErrTimeout) && time.Since(start) > timeout+Grace+time.Second {
			t.Errorf("%s ended after %s", tt.body, time.Since(start))
		}
		if o, _, err := invoke(t, p, 10*time.Second, "well"); err != nil || o.Disposition != host.Ack {
			t.Errorf("after %s: %v, %v; want a fresh instance that acks", tt.body, o, err)
		}
	}
}

// One instance takes one call at a time, and there are no more than Max.
func TestPoolBounds(t *testing.T) {
	p := newPool(t, newEngine(t), "conformance", grantAll, Settings{Max: 2})
	var group sync.WaitGroup
	for range 12 {
		group.Go(func() {
			if o, _, err := invoke(t, p, 30*time.Second, "sleep 10ms"); err != nil || o.Disposition != host.Ack {
				t.Errorf("%v, %v", o, err)
			}
		})
	}
	group.Wait()
	p.mu.Lock()
	idle := len(p.idle)
	p.mu.Unlock()
	if idle < 1 || idle > 2 {
		t.Errorf("%d instances, want 1 or 2", idle)
	}
	for range 2 { // hold both
		group.Go(func() { invoke(t, p, 10*time.Second, "sleep 300ms") })
	}
	for alive := 0; alive < 2; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		alive = p.alive - len(p.idle)
		p.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	c := call(ctx, &record{}, "ack")
	defer c.Close()
	if err := p.Invoke(c); !errors.Is(err, ErrTimeout) {
		t.Errorf("no free instance = %v, want a timeout", err)
	}
	group.Wait()
}

// WAS-2: every file that is not a usable module gets one clear error.
func TestNotModules(t *testing.T) {
	e := newEngine(t)
	good := guest(t, "crash")
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write(good)
	z.Close()
	tests := []struct {
		name string
		wasm []byte
		want error
		says string
	}{
		{"empty", nil, ErrNotWasm, "empty"},
		{"text", []byte("hello"), ErrNotWasm, `begins with "hello"`},
		{"four bytes", []byte("\x00asm"), ErrNotWasm, "cut off after 4 bytes"},
		{"no exports", []byte("\x00asm\x01\x00\x00\x00"), ErrABI, "pelton_abi_1"},
		{"component", []byte("\x00asm\x0d\x00\x01\x00"), ErrNotWasm, "component"},
		{"another version", []byte("\x00asm\x02\x00\x00\x00"), ErrNotWasm, "version"},
		{"gzip", zipped.Bytes(), ErrNotWasm, "gzip"},
		{"half", good[:len(good)/2], ErrNotWasm, "compile"},
	}
	for _, tt := range tests {
		_, err := e.Compile(t.Context(), NewBinary(tt.wasm), manifest(t, ""))
		if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %v that says %q", tt.name, err, tt.want, tt.says)
		}
	}
}

// WAS-2: a module that begins below its limit of memory loads, whatever it might
// grow to.
func TestDeclaredMemory(t *testing.T) {
	a := &assembly{pages: 32, most: 32_768, bodies: [][]byte{{0x01}}}
	module, err := newEngine(t).Compile(t.Context(), NewBinary(a.bytes()), manifest(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPool(module, Settings{Max: 1, Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, _, err := invoke(t, p, time.Second, "x"); err != nil {
		t.Error(err)
	}
}

// A module's imports are what it asks for; all that is missing is said at once.
func TestGrantsAtLoad(t *testing.T) {
	e := newEngine(t)
	_, err := e.Compile(t.Context(), NewBinary(guest(t, "conformance")), manifest(t, "grants: {publish: [out.>]}"))
	if !errors.Is(err, ErrNotGranted) {
		t.Fatalf("got %v, want %v", err, ErrNotGranted)
	}
	for _, grant := range []string{"sqlite", "http", "blob", "kv"} {
		if !strings.Contains(err.Error(), "grants."+grant) {
			t.Errorf("the error does not name grants.%s: %v", grant, err)
		}
	}
	if strings.Contains(err.Error(), "grants.publish") {
		t.Errorf("publish is granted: %v", err)
	}
	_, err = e.Compile(t.Context(), NewBinary(guest(t, "crash")), manifest(t, "digest: sha256:"+strings.Repeat("0", 64)))
	if err == nil || !strings.Contains(err.Error(), "pins") {
		t.Errorf("another digest = %v, want it refused", err)
	}
}

// Everything that a module asks for in vain is said at once.
func TestImportPolicy(t *testing.T) {
	a := &assembly{bodies: [][]byte{{0x01}}, imports: []string{"http_start"}, foreign: []string{
		"wasi_snapshot_preview1.fd_read", "wasi_snapshot_preview1.thread_spawn", "pelton.fly", "pelton.log", "env.memset", "pelton._refuel",
	}}
	_, err := newEngine(t).Compile(t.Context(), NewBinary(a.bytes()), manifest(t, ""))
	for _, says := range []string{
		"wasi_snapshot_preview1.fd_read has another signature", "wasi_snapshot_preview1.thread_spawn is not offered", "pelton.fly is not offered",
		"pelton.log has another signature", `there is no module "env"`, "pelton._refuel is not offered", "grants.http",
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the error does not say %q: %v", says, err)
		}
	}
}

// WAS-5: growth beyond the limit fails in the guest, and memory does not pile up.
func TestMemoryLimit(t *testing.T) {
	e := newEngine(t)
	module, err := e.Compile(t.Context(), NewBinary(guest(t, "crash")), manifest(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewPool(module, Settings{Max: 1, Memory: 1 << 20}); !errors.Is(err, ErrABI) || !strings.Contains(err.Error(), "limits.memory") {
		t.Errorf("a module that begins above its limit = %v, want it refused", err)
	}
	p := newPool(t, e, "crash", "", Settings{Max: 2, Memory: 64 << 20})
	before := resident(t)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if _, _, err := invoke(t, p, 60*time.Second, "grow"); !errors.Is(err, ErrTrap) {
				t.Errorf("got %v, want the guest to run out of memory", err)
			}
		})
	}
	most := int64(0)
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(time.Millisecond):
		}
		most = max(most, resident(t)-before)
	}
	t.Logf("at most %d MiB", most>>20)
	if most > 160<<20 {
		t.Errorf("the process grew by %d MiB while two guests of 64 MiB ran out of memory", most>>20)
	}
	flat := heap()
	for range 2000 {
		if o, _, err := invoke(t, p, 10*time.Second, "well"); err != nil || o.Disposition != host.Ack {
			t.Fatalf("%+v, %v", o, err)
		}
	}
	if grown := heap() - flat; grown > 4<<20 {
		t.Errorf("2,000 invocations left %d bytes", grown)
	}
}

// resident is the memory of this process that is there.
func resident(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if errors.Is(err, os.ErrNotExist) {
		return 0 // not a system that tells
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(b), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// A corrupt cache entry is compiled anew.
func TestCorruptCache(t *testing.T) {
	dir := t.TempDir()
	wasm := guest(t, "crash")
	for round := range 2 {
		e, err := New(t.Context(), Config{CacheDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Compile(t.Context(), NewBinary(wasm), manifest(t, "")); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		e.Close(t.Context())
		files, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(f, b[:len(b)/2], 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}
