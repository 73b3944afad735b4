package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	_ "modernc.org/sqlite"

	"github.com/pelton-run/pelton/cmd/pelton/demo"
)

const (
	bin   = "../../bin"
	cache = bin + "/testers/cache"
)

// asPelton has the test's own binary be the command line, for tests that kill it.
const asPelton = "PELTON_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asPelton) != "" {
		main()
		return
	}
	if node := os.Getenv(asServer); node != "" {
		serve(node)
		return
	}
	for _, v := range os.Environ() { // hosts of the tests are never on somebody's cluster
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "NATS_") {
			os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

// command runs a command line to its end and returns what it printed.
func command(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Env = append(os.Environ(), asPelton+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestExitStatus(t *testing.T) {
	empty := t.TempDir()
	tests := []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"--version"}, 0, "pelton version"},
		{[]string{"up", "--nonsense"}, 2, "--help"},
		{[]string{"ls", "surplus"}, 2, "pelton ls --help"},
		{[]string{"up", "--log-level", "loud"}, 2, "debug, info, warn, error"},
		{[]string{"ls", "--nats", "nats://127.0.0.1:1"}, 1, "name another with --nats"},
		{[]string{"up", "--dir", filepath.Join(empty, "no"), "--data", empty}, 1, "--dir"},
		{[]string{"up", "--dir", empty, "--data", empty, "--name", "a.b"}, 1, "letters, digits"},
		{[]string{"check", "--host", "", "--cache", cache, filepath.Join(bin, "functions", "purge.yaml")}, 1, "PELTON_SECRET_CF_TOKEN"},
		{[]string{"check", "--host", filepath.Join(empty, "no.yaml"), empty}, 1, "--config"},
		{[]string{"up", "--config", filepath.Join(empty, "no.yaml"), "--dir", empty, "--data", empty}, 1, "--config"},
		{[]string{"db", "backup", "search", "--data", empty}, 1, "--data"},
		{[]string{"db", "backup"}, 2, "--help"},
		{[]string{"check", empty}, 1, "holds no manifest"},
		{[]string{"demo", "--events", "3"}, 2, "40 is the least"},
		{[]string{"bogus"}, 2, "--help"},
		{[]string{"completion", "bash"}, 0, "pelton"},
	}
	for _, tt := range tests {
		stdout, stderr, status := command(t, tt.args...)
		if status != tt.status || !strings.Contains(stdout+stderr, tt.says) {
			t.Errorf("pelton %s: status %d, printed %.300q; want %d and %q", strings.Join(tt.args, " "), status, stdout+stderr, tt.status, tt.says)
		}
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"bad.yaml": "name: bad\ntimeout: 5\n", "nomodule.yaml": "name: nomodule\ntriggers: [{stream: S}]\n", "streams.yaml": "streams: [{name: S}]\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stdout, _, status := command(t, "check", dir)
	for _, says := range []string{"bad.yaml:2:10: timeout: 5 has no unit", "nomodule.wasm does not exist", "streams[0].subjects: is missing", "3 checked, 3 wrong"} {
		if !strings.Contains(stdout, says) {
			t.Errorf("check prints %q, want %q in it", stdout, says)
		}
	}
	if status != 1 {
		t.Errorf("status = %d, want 1", status)
	}
	stdout, stderr, status := command(t, "check", "--json", "--cache", cache, filepath.Join(bin, "functions"))
	var verdicts []verdict
	if err := json.Unmarshal([]byte(stdout), &verdicts); err != nil || status != 0 || len(verdicts) != 7 {
		t.Fatalf("check of the shipped functions: status %d, %d verdicts, %v\n%s%s", status, len(verdicts), err, stdout, stderr)
	}
	for _, v := range verdicts {
		if !v.OK {
			t.Errorf("%s: %s", v.File, v.Error)
		}
	}
}

func TestDemo(t *testing.T) {
	var out bytes.Buffer
	log, err := logger("error")
	if err != nil {
		t.Fatal(err)
	}
	err = demo.Run(t.Context(), demo.Config{Events: 60, Folder: filepath.Join(bin, "functions"), JSON: true, Out: &out, Notes: io.Discard, Log: log, Cache: cache})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	var r demo.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || !r.OK || r.Events != 60 || len(r.Checks) != 7 || len(r.Functions) != 6 || len(r.DeadLetters) == 0 {
		t.Errorf("report = %+v, %v", r, err)
	}
}

// host is a pelton up in a process of its own.
type host struct {
	t    *testing.T
	exe  string // the test's own binary when empty
	args []string
	env  []string
	cmd  *exec.Cmd
	log  *os.File
}

func (h *host) start() {
	h.t.Helper()
	exe := h.exe
	if exe == "" {
		var err error
		if exe, err = os.Executable(); err != nil {
			h.t.Fatal(err)
		}
	}
	h.cmd = exec.Command(exe, h.args...)
	h.cmd.Env = append(append(os.Environ(), asPelton+"=1"), h.env...)
	h.cmd.Stdout, h.cmd.Stderr = h.log, h.log
	if err := h.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) kill() {
	h.cmd.Process.Kill()
	h.cmd.Wait()
}

// Killed again and again in mid-flow, the host leaves in the end what an
// undisturbed run leaves: every video indexed once, every thumbnail whole.
func TestKill9(t *testing.T) {
	const videos, kills = 300, 5
	origin := httptest.NewServer(http.FileServer(http.Dir("../../host/image/testdata")))
	defer origin.Close()
	dir, data := t.TempDir(), t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(bin, "functions"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"purge", "sitemap", "counters"} {
		os.Remove(filepath.Join(dir, name+".yaml"))
	}
	for file, change := range map[string][2]string{
		"thumbnail.yaml": {"{public: true}", fmt.Sprintf("{origin: %q}", origin.URL)},
		"index.yaml":     {"ack_wait: 30s", "ack_wait: 3s"},
	} {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(string(b), change[0], change[1], 1)
		text = strings.Replace(text, "ack_wait: 60s", "ack_wait: 3s", 1)
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	port := freePort(t)
	h := &host{t: t, log: log, args: []string{"up", "--dir", dir, "--data", data, "--listen", port, "--cache", cache, "--config", loopback}}
	h.start()
	t.Cleanup(func() {
		h.kill()
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("the host's log ends with:\n%s", b[max(0, len(b)-3000):])
		}
	})
	nc, err := nats.Connect("nats://"+port, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for i := range videos {
		body := fmt.Sprintf(`{"schema":1,"video_id":%d,"external_id":"v%d","source":"s","revision":1,"title":"word%d","thumb_url":"%s/really_png.jpg"}`, i, i, i, origin.URL)
		publishUntil(t, js, fmt.Sprintf("video.ingested.s.v%d", i), body)
		if i > 0 && i%(videos/kills) == 0 {
			h.kill()
			h.start()
		}
	}
	waitIdle(t, js, "index", "thumbnail")
	checkIndex(t, filepath.Join(data, "sqlite", "search.db"), videos)
	for i := range videos {
		for _, w := range []int{160, 320, 640} {
			b, err := os.ReadFile(filepath.Join(data, "blobs", "thumbs", fmt.Sprintf("v%d_%d.webp", i, w)))
			if err != nil || !bytes.HasPrefix(b, []byte("RIFF")) || len(b) != int(b[4])+int(b[5])<<8+8 {
				t.Fatalf("thumbnail %d of video %d: %d bytes, %v", w, i, len(b), err)
			}
		}
	}
	if s, err := js.Stream(t.Context(), "DLQ"); err == nil && s.CachedInfo().State.Msgs > 0 {
		t.Errorf("%d dead letters, want none", s.CachedInfo().State.Msgs)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	return s.Listener.Addr().String()
}

// publishUntil publishes until the stream has it, under one message id.
func publishUntil(t *testing.T, js jetstream.JetStream, subject, body string) {
	t.Helper()
	until(t, "publish", time.Minute, func() bool { return publishOnce(t.Context(), js, subject, body) == nil })
}

// publishOnce publishes, with the subject as the message's id.
func publishOnce(ctx context.Context, js jetstream.JetStream, subject, body string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := js.Publish(ctx, subject, []byte(body), jetstream.WithMsgID(subject))
	return err
}

func waitIdle(t *testing.T, js jetstream.JetStream, durables ...string) {
	t.Helper()
	for _, name := range durables {
		until(t, "nothing left of "+name, 2*time.Minute, func() bool {
			c, err := js.Consumer(t.Context(), "VIDEO_EVENTS", name)
			if err != nil {
				return false
			}
			info := c.CachedInfo()
			return info.NumPending == 0 && info.NumAckPending == 0
		})
	}
}

func until(t *testing.T, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for: %s", limit, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// checkIndex looks at the file as another program would.
func checkIndex(t *testing.T, path string, videos int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var rows, found int
	if err := db.QueryRow("SELECT count(*) FROM videos").Scan(&rows); err != nil {
		t.Fatal(err)
	}
	for i := range videos {
		var n int
		if err := db.QueryRow("SELECT count(*) FROM videos_fts WHERE videos_fts MATCH ?", fmt.Sprintf("word%d", i)).Scan(&n); err != nil {
			t.Fatal(err)
		}
		found += n
	}
	if rows != videos || found != videos {
		t.Errorf("%d rows and %d hits, want %d of each", rows, found, videos)
	}
}
