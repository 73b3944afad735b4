package up

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"golang.org/x/image/webp"

	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime/broker"
	"github.com/pelton-run/pelton/runtime/status"
)

// bin is what make leaves there.
const bin = "../../../bin"

// folder is a functions folder of a test.
type folder struct {
	t   *testing.T
	dir string
}

func newFolder(t *testing.T) *folder {
	t.Helper()
	return &folder{t, t.TempDir()}
}

// add puts a function into the folder: a module of make's and a manifest.
func (f *folder) add(name, module, manifest string) *folder {
	f.t.Helper()
	path, err := filepath.Abs(filepath.Join(bin, module+".wasm"))
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		f.t.Fatalf("%v; run make functions testers", err)
	}
	if err := os.Symlink(path, filepath.Join(f.dir, name+".wasm")); err != nil {
		f.t.Fatal(err)
	}
	return f.write(name+".yaml", manifest)
}

func (f *folder) write(name, content string) *folder {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(content), 0o644); err != nil {
		f.t.Fatal(err)
	}
	return f
}

// shipped puts a shipped function into the folder, with passages replaced.
func (f *folder) shipped(name string, replace ...string) *folder {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join(bin, "functions", name+".yaml"))
	if err != nil {
		f.t.Fatalf("%v; run make functions", err)
	}
	text := string(b)
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(text, replace[i]) {
			f.t.Fatalf("%s.yaml has no %q", name, replace[i])
		}
		text = strings.Replace(text, replace[i], replace[i+1], 1)
	}
	if _, err := os.Stat(filepath.Join(f.dir, "migrations")); err != nil {
		if err := os.CopyFS(filepath.Join(f.dir, "migrations"), os.DirFS(filepath.Join(bin, "functions", "migrations"))); err != nil {
			f.t.Fatal(err)
		}
	}
	return f.add(name, "functions/"+name, text)
}

const videoStream = "streams:\n  - {name: VIDEO_EVENTS, subjects: [video.>], max_age: 1h}\n"

// bench is a running host with a client.
type bench struct {
	*Host
	t  *testing.T
	nc *nats.Conn
	js jetstream.JetStream
}

func start(t *testing.T, f *folder, change func(c *Config)) *bench {
	t.Helper()
	config := Config{
		Folder: f.dir, Data: t.TempDir(), Name: "h1", Region: "eu", Listen: "127.0.0.1:0", Log: zerolog.Nop(),
		Cache:   filepath.Join(bin, "testers", "cache"),
		Secrets: func(name string) (string, error) { return "secret-" + name, nil },
		Place:   &manifests.Host{Networks: manifests.Networks{Allow: []string{"127.0.0.0/8"}}}, // of the tests' servers
	}
	if change != nil {
		change(&config)
	}
	h, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{Host: h, t: t}
	closed := sync.OnceFunc(func() {
		if err := h.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	t.Cleanup(closed)
	if b.nc, err = nats.Connect(h.URL(), nats.RetryOnFailedConnect(true)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.nc.Close)
	if b.js, err = jetstream.New(b.nc); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) publish(subject, body string) {
	b.t.Helper()
	until(b.t, "publish to "+subject, 10*time.Second, func() bool {
		_, err := b.js.Publish(b.t.Context(), subject, []byte(body))
		return err == nil
	})
}

func (b *bench) figures(name string) status.Figures {
	for _, f := range b.Report().Functions {
		if f.Function == name {
			return f
		}
	}
	return status.Figures{}
}

// done waits until a function has settled n messages for good.
func (b *bench) done(name string, n int) status.Figures {
	b.t.Helper()
	var f status.Figures
	until(b.t, fmt.Sprintf("%s has settled %d", name, n), 30*time.Second, func() bool {
		f = b.figures(name)
		return int(f.Acked+f.DeadLetters) >= n
	})
	return f
}

func (b *bench) search(q string) []map[string]any {
	b.t.Helper()
	body, _ := json.Marshal(map[string]string{"q": q})
	msg, err := b.nc.Request("search.videos", body, 10*time.Second)
	if err != nil {
		b.t.Fatal(err)
	}
	if code := msg.Header.Get("Nats-Service-Error-Code"); code != "" {
		b.t.Errorf("search for %q: %s %s", q, code, msg.Header.Get("Nats-Service-Error"))
	}
	d := json.NewDecoder(bytes.NewReader(msg.Data))
	d.UseNumber()
	var answer struct{ Hits []map[string]any }
	if err := d.Decode(&answer); err != nil {
		b.t.Fatal(err)
	}
	return answer.Hits
}

type letter struct{ reason, deliveries string }

// letters returns the dead letters of a function by their subject.
func (b *bench) letters(function string) map[string]letter {
	b.t.Helper()
	found := map[string]letter{}
	s, err := b.js.Stream(b.t.Context(), "DLQ")
	if err != nil {
		return found
	}
	for seq := uint64(1); seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(b.t.Context(), seq)
		if err != nil {
			b.t.Fatal(err)
		}
		if m.Header.Get("Pelton-Function") == function {
			found[m.Subject] = letter{m.Header.Get("Pelton-Error"), m.Header.Get("Pelton-Deliveries")}
		}
	}
	return found
}

func until(t *testing.T, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for: %s", limit, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// SQL-2, JSN-1, JSN-2 and CON-7 through the whole path: stream, index, SQLite,
// search.
func TestIndexAndSearch(t *testing.T) {
	b := start(t, newFolder(t).shipped("index").shipped("search").write("streams.yaml", videoStream), nil)
	n := 0
	index := func(subject, body string) {
		n++
		b.publish(fmt.Sprintf("video.%s.src.v%d", subject, n), body)
	}
	titles := []string{"multi-agent", "don't panic", "ubuntu 20.04", "C++ notes", "IDOLM@STER", "a/b path"}
	for i, title := range titles {
		body, _ := json.Marshal(map[string]any{"schema": 1, "video_id": i + 1, "revision": 1, "title": title})
		index("ingested", string(body))
	}
	index("ingested", "\xEF\xBB\xBF"+`{"video_id":9007199254740992,"revision":9007199254740992,"title":"evenlarge"}`)
	index("ingested", `{"video_id":9007199254740993,"revision":1,"title":"oddlarge"}`)
	index("updated", `{"video_id":9007199254740992,"revision":9007199254740993,"title":"newerlarge"}`)
	index("updated", `{"video_id":9007199254740992,"revision":9007199254740992,"title":"stalelarge"}`)
	index("removed", `{"video_id":1000,"revision":5}`)
	index("ingested", `{"video_id":1000,"revision":4,"title":"lateadd"}`)
	index("updated", `{"video_id":1000,"revision":6,"title":"lateupdate"}`)
	first := n
	bad := []string{"", "   ", "null", "[]", "{} {}", "\xFF\xFE{\x00}\x00", "not json", `{"video_id":12345678901234567890123,"revision":1}`,
		`{"video_id":7,"revision":1.5}`, `{"video_id":7,"revision":"7"}`, `{"schema":2,"video_id":7,"revision":1}`}
	for _, body := range bad {
		index("ingested", body)
	}
	index("ingested", `{"video_id":2000,"revision":1,"title":"afterwards"}`)
	f := b.done("index", n)
	if int(f.DeadLetters) != len(bad) || f.Nak != 0 || f.Redelivered != 0 {
		t.Errorf("figures = %+v, want %d dead letters and no retry", f, len(bad))
	}
	letters := b.letters("index")
	for i := range bad {
		l := letters[fmt.Sprintf("dlq.video.ingested.src.v%d", first+1+i)]
		if l.reason == "" || l.deliveries != "1" {
			t.Errorf("%q: dead letter %+v, want a reason after 1 delivery", bad[i], l)
		}
	}
	for i, title := range titles {
		if hits := b.search(title); len(hits) != 1 || hits[0]["id"] != fmt.Sprint(i+1) {
			t.Errorf("search for %q finds %v", title, hits)
		}
	}
	for _, q := range []string{`"`, "|", "''", "AND", "NEAR(", "a OR", "*", "title:x", "a^b", "(", "2026-12-15", "", "  ", "\x00", `" OR "`, "-x", "{a b}:c", "+"} {
		b.search(q) // it reports an SQL error
	}
	for q, want := range map[string]string{"newerlarge": "9007199254740992", "oddlarge": "9007199254740993", "afterwards": "2000"} {
		if hits := b.search(q); len(hits) != 1 || hits[0]["id"] != want {
			t.Errorf("search for %s finds %v, want id %s", q, hits, want)
		}
	}
	if hits := b.search("newerlarge"); len(hits) == 1 && fmt.Sprint(hits[0]["revision"]) != "9007199254740993" {
		t.Errorf("revision = %v, and lost digits", hits[0]["revision"])
	}
	for _, q := range []string{"evenlarge", "stalelarge", "lateadd", "lateupdate"} {
		if hits := b.search(q); len(hits) != 0 {
			t.Errorf("search for %s finds %v, want nothing", q, hits)
		}
	}
}

// IMG-1, IMG-2, IMG-3 and IMG-7 through the whole path: stream, HTTP, picture,
// blob store.
func TestThumbnails(t *testing.T) {
	fixtures := os.DirFS("../../../host/image/testdata")
	misses := map[string]int{}
	var mu sync.Mutex
	files := http.FileServerFS(fixtures)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch r.URL.Path {
		case "/gone":
			w.WriteHeader(410)
		case "/missing":
			w.WriteHeader(404)
		case "/as-html":
			w.Header().Set("Content-Type", "text/html")
			r.URL.Path = "/really_png.jpg"
			files.ServeHTTP(w, r)
		case "/flaky":
			if misses["flaky"]++; misses["flaky"] <= 2 {
				w.WriteHeader(503)
				return
			}
			r.URL.Path = "/really_png.jpg"
			files.ServeHTTP(w, r)
		case "/page": // a page where the picture was, with status 200
			w.Header().Set("Content-Type", "image/jpeg")
			fmt.Fprint(w, "<!DOCTYPE html><html></html>")
		default:
			files.ServeHTTP(w, r)
		}
	}))
	defer s.Close()
	b := start(t, newFolder(t).shipped("thumbnail", "{public: true}", fmt.Sprintf("{origin: %q}", s.URL), "[2s, 10s, 1m, 5m]", "[50ms]").write("streams.yaml", videoStream), nil)
	good := map[string][2]int{ // size at width 160
		"exif_6.jpg": {80, 160}, "really_png.jpg": {0, 0}, "as-html": {0, 0}, "flaky": {0, 0}, "tall_1x10000.png": {1, 10000}, "wide_1920x3.png": {160, 1}, "tall_100x20000.png": {82, 16383},
	}
	bad := map[string]string{"bomb_30000x30000_1bit.png": "30000×30000", "zero.jpg": "empty body", "zero_dim.png": "png", "page": "HTML page", "gone": "status 410", "missing": "status 404"}
	publish := func(file string) string {
		name := strings.NewReplacer(".", "-").Replace(file)
		b.publish("video.ingested.src."+name, fmt.Sprintf(`{"video_id":"%s","revision":1,"external_id":%q,"thumb_url":%q}`, name, name, s.URL+"/"+file))
		return name
	}
	for file := range good {
		publish(file)
	}
	for file := range bad {
		publish(file)
	}
	publish("really_png.jpg")
	b.done("thumbnail", len(good)+len(bad)+1)
	thumbs := filepath.Join(b.config.Data, "blobs", "thumbs")
	for file, size := range good {
		name := strings.NewReplacer(".", "-").Replace(file)
		for _, width := range []int{160, 320, 640} {
			data, err := os.ReadFile(filepath.Join(thumbs, fmt.Sprintf("%s_%d.webp", name, width)))
			if err != nil {
				t.Error(err)
				continue
			}
			c, err := webp.DecodeConfig(bytes.NewReader(data))
			if err != nil {
				t.Errorf("%s: %v", file, err)
			}
			if width == 160 && size[0] > 0 && (c.Width != size[0] || c.Height != size[1]) {
				t.Errorf("%s is %d×%d, want %v", file, c.Width, c.Height, size)
			}
		}
	}
	letters := b.letters("thumbnail")
	for file, says := range bad {
		name := strings.NewReplacer(".", "-").Replace(file)
		if l := letters["dlq.video.ingested.src."+name]; !strings.Contains(l.reason, says) || l.deliveries != "1" {
			t.Errorf("%s: dead letter %+v, want %q after 1 delivery", file, l, says)
		}
	}
	if len(letters) != len(bad) {
		t.Errorf("%d dead letters, want %d", len(letters), len(bad))
	}
	s2, err := b.js.Stream(t.Context(), "VIDEO_EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := s2.GetLastMsgForSubject(t.Context(), "video.enriched.thumbnail.flaky"); err != nil || m.Header.Get("Nats-Msg-Id") == "" {
		t.Errorf("the announcement = %v, %v; want it with a message id", m, err)
	}
}

// HTT-1: a server that asks for time gets it, in both forms, and other messages
// do not wait with it.
func TestRetryAfter(t *testing.T) {
	var mu sync.Mutex
	calls := map[string][]time.Time{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Files []string }
		json.NewDecoder(r.Body).Decode(&body)
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer secret-cf_token" {
			t.Errorf("Authorization = %q", r.Header.Get("Authorization"))
		}
		name := strings.TrimPrefix(body.Files[0], "https://www.example.com/watch/")
		calls[name] = append(calls[name], time.Now())
		if len(calls[name]) > 1 || strings.HasPrefix(name, "plain") {
			return
		}
		switch name {
		case "seconds":
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(429)
		case "date":
			w.Header().Set("Retry-After", time.Now().Add(4*time.Second).UTC().Format(http.TimeFormat))
			w.WriteHeader(503)
		case "soon":
			w.Header().Set("Retry-After", "soon")
			w.WriteHeader(429)
		case "day":
			w.Header().Set("Retry-After", "86400")
			w.WriteHeader(429)
		}
	}))
	defer s.Close()
	b := start(t, newFolder(t).write("streams.yaml", videoStream).shipped("purge", "origin: https://api.cloudflare.com", "origin: "+fmt.Sprintf("%q", s.URL),
		"https://api.cloudflare.com/client/v4/zones/ZONE/purge_cache", s.URL+"/client/v4/zones/x/purge_cache", "max_delay: 10m", "max_delay: 6s", "batch: {max: 100, wait: 100ms}", "batch: {max: 1}", "concurrency: 2", "concurrency: 4"), nil)
	names := []string{"seconds", "date", "soon", "day"}
	for i, name := range names {
		b.publish("video.ingested.src."+name, fmt.Sprintf(`{"video_id":%d,"revision":1,"external_id":%q}`, i+1, name))
	}
	begun := time.Now()
	for i := range 20 {
		b.publish("video.ingested.src.plain", fmt.Sprintf(`{"video_id":%d,"revision":1,"external_id":"plain%d"}`, 100+i, i))
	}
	b.done("purge", 20)
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("20 others took %s", took)
	}
	b.done("purge", 24)
	mu.Lock()
	defer mu.Unlock()
	for name, want := range map[string][2]time.Duration{"seconds": {3 * time.Second, 5 * time.Second}, "date": {3 * time.Second, 5500 * time.Millisecond}, "soon": {time.Second, 2500 * time.Millisecond}, "day": {6 * time.Second, 8 * time.Second}} {
		if len(calls[name]) != 2 {
			t.Errorf("%s: %d calls, want 2", name, len(calls[name]))
			continue
		}
		if gap := calls[name][1].Sub(calls[name][0]); gap < want[0] || gap > want[1] {
			t.Errorf("%s: the second call came after %s, want %s to %s", name, gap, want[0], want[1])
		}
	}
}

// A bad manifest or module stops nothing else, and is shown with its reason.
func TestBadFunctions(t *testing.T) {
	f := newFolder(t).write("streams.yaml", "streams: [{name: S, subjects: [s.>]}]\n").
		add("good", "testers/crash", "name: good\ntriggers: [{stream: S}]\n").
		write("broken.yaml", "name: broken\ntimeout: 5\n").
		write("nomodule.yaml", "name: nomodule\ntriggers: [{stream: S}]\n").
		write("short.yaml", "name: short\ntriggers: [{stream: S}]\n").write("short.wasm", "\x00asm").
		add("ungranted", "testers/conformance", "name: ungranted\ntriggers: [{stream: S}]\n").
		add("twin", "testers/crash", "name: good\ntriggers: [{stream: S}]\n").
		add("later", "testers/crash", "name: later\ntriggers: [{stream: MISSING}]\n").
		write("Not A Name.yaml", "x")
	b := start(t, f, nil)
	b.publish("s.x", "well")
	b.done("good", 1)
	for name, says := range map[string]string{"broken": "5 has no unit", "nomodule": "does not exist", "short": "cut off", "ungranted": "grants.sqlite", "twin": "the name of the function in good.yaml", "Not A Name": "not a mapping"} {
		g := b.figures(name)
		if g.State != status.StateFailing || len(g.Reasons) != 1 || !strings.Contains(g.Reasons[0], says) {
			t.Errorf("%s: state %s with %q, want failing that says %q", name, g.State, g.Reasons, says)
		}
	}
	until(t, "later says what it waits for", 10*time.Second, func() bool {
		g := b.figures("later")
		return g.State == status.StateFailing && strings.Contains(strings.Join(g.Reasons, ""), "stream MISSING does not exist")
	})
	// The micro services of all that have a name, and each endpoint answers.
	msg, err := b.nc.Request("pelton.fn.later.h1.health", nil, time.Second)
	if err != nil || !strings.Contains(string(msg.Data), "MISSING") {
		t.Errorf("health of later = %v, %v", msg, err)
	}
	hosts, err := status.ListHosts(t.Context(), b.nc, 200*time.Millisecond)
	if err != nil || len(hosts) != 1 || len(hosts[0].Functions) != 8 {
		t.Errorf("hosts = %+v, %v; want one with 8 functions", hosts, err)
	}
}

// A restart with one more pair adds exactly that consumer.
func TestOneMore(t *testing.T) {
	data := t.TempDir()
	f := newFolder(t).write("streams.yaml", "streams: [{name: S, subjects: [s.>]}]\n").add("one", "testers/crash", "name: one\ntriggers: [{stream: S}]\n")
	run := func() []string {
		b := start(t, f, func(c *Config) { c.Data = data })
		b.publish("s.x", "well")
		b.done("one", 1)
		var names []string
		s, err := b.js.Stream(t.Context(), "S")
		if err != nil {
			t.Fatal(err)
		}
		for name := range s.ConsumerNames(t.Context()).Name() {
			names = append(names, name)
		}
		b.nc.Close()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		return names
	}
	if got := run(); len(got) != 1 {
		t.Errorf("durables = %v, want one", got)
	}
	f.add("two", "testers/crash", "name: two\ntriggers: [{stream: S}]\n")
	if got := run(); len(got) != 2 {
		t.Errorf("durables = %v, want one and two", got)
	}
}

// OPS-5: a host that starts before NATS waits for it, and consumes soon after.
func TestNATSComesLater(t *testing.T) {
	server, err := broker.Start("127.0.0.1:0", t.TempDir(), broker.DefaultSync, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	url := server.URL()
	if err := server.Close(); err != nil { // its port is free, and known
		t.Fatal(err)
	}
	f := newFolder(t).write("streams.yaml", "streams: [{name: S, subjects: [s.>]}]\n").add("one", "testers/crash", "name: one\ntriggers: [{stream: S}]\n")
	b := start(t, f, func(c *Config) { c.URL = url })
	until(t, "it says that it waits", 20*time.Second, func() bool { return b.figures("one").State == status.StateFailing })
	store := t.TempDir()
	for n := 1; n <= 2; n++ { // the second time it comes back after a restart
		server, err = broker.Start(strings.TrimPrefix(url, "nats://"), store, broker.DefaultSync, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		ready := time.Now()
		b.publish("s.x", "well")
		b.done("one", n)
		if took := time.Since(ready); took > 10*time.Second {
			t.Errorf("consuming after %s, want 10s at most", took)
		}
		if n == 1 {
			if err := server.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(func() { server.Close() })
}

// Every capability, through a real guest and the real thing behind it.
func TestCapabilities(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "pong") }))
	defer s.Close()
	f := newFolder(t).write("streams.yaml", "streams: [{name: OUT, subjects: [out.>]}]\n").
		add("all", "testers/conformance", fmt.Sprintf(`
name: all
triggers: [{request: ask.all}]
grants:
  sqlite: {test: {mode: write}}
  http: [{origin: %q, methods: [GET, POST]}]
  blob: {test: {mode: write}}
  kv: {TEST: {mode: write, create: true}}
  publish: [out.>, {subject: live.>, core: true}, nowhere.*]
`, s.URL))
	b := start(t, f, nil)
	until(t, "the stream", 10*time.Second, func() bool { _, err := b.js.Stream(t.Context(), "OUT"); return err == nil })
	live, err := b.nc.SubscribeSync("live.>")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(body string) (string, string) {
		msg, err := b.nc.Request("ask.all", []byte(body), 10*time.Second)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return string(msg.Data), msg.Header.Get("Nats-Service-Error-Code") + " " + msg.Header.Get("Nats-Service-Error")
	}
	tests := []struct{ body, answer, fails string }{
		{"exec CREATE TABLE a (v TEXT)", "0", ""},
		{"exec INSERT INTO a VALUES ('x')", "1", ""},
		{"exec CREATE TABLE many (v TEXT UNIQUE, n INTEGER)", "0", ""},
		{"exec-many 7 77 777", "3 3", ""},
		{"exec-many 8 88 77", "", "400 errno 3: row 3: sql: "},
		{"exec-many", "0 0", ""},
		{"query SELECT v, n FROM many", "71;772;7773", ""},
		{"exec-term INSERT INTO a VALUES ('undone')", "", "400 written and regretted"},
		{"query SELECT count(*), max(v) FROM a", "1x", ""},
		{"values", `[]interface {}{interface {}(nil), -9223372036854775808, 1.5, "täxt", []uint8{0x0, 0xff}}`, ""},
		{"exec NONSENSE", "", "400 errno 10: sql: "},
		{"exec COMMIT", "", "400 errno 1: sql: not permitted"},
		{"fetch " + s.URL + "/ping", "200 pong", ""},
		{"fetch http://169.254.169.254/", "", "400 errno 1: http: "},
		{"fetch-all " + s.URL + "/a http://169.254.169.254/ " + s.URL + "/b", "200 pong; http: POST http://169.254.169.254/ is not granted; 200 pong", ""},
		{"fetch-all" + strings.Repeat(" "+s.URL, 1001), "", "400 errno 6: http_start_all: "},
		{"blob dir/key.txt", `dir/key.txt 22 "content of dir/key.txt" of 1`, ""},
		{"blob-if dir/digits", "true true true true text/x-digits 10 map[a:1 b-2:two words] 3456", ""},
		{"blob ../escape", "", "400 errno 6: blob: "},
		{"kv k1", "two grew true keys 1 gone true", ""},
		{"publish out.x hello", "published", ""},
		{"publish live.x hello", "published", ""},
		{"publish nowhere.x hello", "", "400 errno 2: publish: no stream takes"},
		{"publish secret.x hello", "", "400 errno 1: publish: "},
		{"publish out.* hello", "", "400 errno 6: publish: "},
		{"publish out..x hello", "", "400 errno 6: publish: "},
		{"publish out. hello", "", "400 errno 6: publish: "},
		{"publish .out hello", "", "400 errno 6: publish: "},
		{"publish  hello", "", "400 errno 6: publish: "},
		{"publish $JS.API.STREAM.DELETE.OUT x", "", "400 errno 1: publish: "},
		{"where", "request   0 1", ""},
		{"fail x", "", "500 failed: x"},
		{"panic x", "", "500 panic: told to: x"},
	}
	for _, tt := range tests {
		answer, failed := ask(tt.body)
		if tt.fails == "" && (answer != tt.answer || failed != " ") || tt.fails != "" && !strings.HasPrefix(failed, tt.fails) {
			t.Errorf("%s: answered %q, failed %q; want %q, %q", tt.body, answer, failed, tt.answer, tt.fails)
		}
	}
	if msg, err := live.NextMsg(5 * time.Second); err != nil || string(msg.Data) != "hello" {
		t.Errorf("core publish = %v, %v", msg, err)
	}
	out, err := b.js.Stream(t.Context(), "OUT")
	if err != nil || out.CachedInfo().State.Msgs != 1 {
		t.Errorf("OUT = %+v, %v; want one message, since refused ones store nothing", out.CachedInfo().State, err)
	}
}

// A store that another host uses, and a port that is taken, are said plainly.
func TestTaken(t *testing.T) {
	f := newFolder(t)
	b := start(t, f, nil)
	config := Config{Folder: f.dir, Data: t.TempDir(), Listen: strings.TrimPrefix(b.URL(), "nats://"), Log: zerolog.Nop()}
	if _, err := Start(t.Context(), config); err == nil || !strings.Contains(err.Error(), "--nats") || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("taken port = %v, want an error that names --nats and --listen", err)
	}
	config.Data, config.Listen = b.config.Data, "127.0.0.1:0"
	if _, err := Start(t.Context(), config); err == nil || !strings.Contains(err.Error(), "--data") {
		t.Errorf("taken store = %v, want an error that names --data", err)
	}
	if _, err := Start(context.Background(), Config{Folder: filepath.Join(f.dir, "nope"), Data: t.TempDir(), Listen: "127.0.0.1:0"}); err == nil || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("missing folder = %v, want an error that names --dir", err)
	}
}
