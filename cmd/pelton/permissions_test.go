package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pelton-run/pelton/cmd/pelton/up"
)

// everything is a function with every kind of trigger and grant that goes over NATS.
const everything = `name: everything
triggers:
  - {stream: WORK, filter_subjects: [work.do.>]}
  - {request: ask.everything}
  - {schedule: "@every 1s"}
retry: {max_deliver: 2, backoff: [100ms]}
grants:
  sqlite: {test: {mode: write}}
  http: [{public: true}]
  blob: {test: {mode: write}}
  kv: {TEST: {mode: write, create: true}}
  publish: [work.done.*, {subject: live.>, core: true}]
`

const everythingStreams = "streams: [{name: WORK, subjects: [work.>]}]\n"

// permitted makes the users of the roles, with exactly what the command prints.
func permitted(t *testing.T, dir, place string) []*server.User {
	t.Helper()
	users := []*server.User{{Username: "admin", Password: "admin"}}
	for _, role := range up.Roles() {
		out, stderr, status := command(t, "permissions", "--role", role, "--dir", dir, "--config", place, "--name", "h1", "--inbox-prefix", "_INBOX_"+role, "--json")
		if status != 0 {
			t.Fatalf("permissions of %s: status %d, %s", role, status, stderr)
		}
		var p up.Permissions
		if err := json.Unmarshal([]byte(out), &p); err != nil {
			t.Fatal(err)
		}
		u := &server.User{Username: role, Password: role, Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: p.Publish}, Subscribe: &server.SubjectPermission{Allow: p.Subscribe}}}
		if p.Responses {
			u.Permissions.Response = &server.ResponsePermission{MaxMsgs: 1, Expires: time.Minute}
		}
		users = append(users, u)
	}
	return users
}

// A host does all of its work with exactly the permissions that are printed for it,
// and so do those who look at it and those who redrive.
func TestPermissions(t *testing.T) {
	dir, place := t.TempDir(), filepath.Join(t.TempDir(), "pelton.yaml")
	module, err := filepath.Abs(filepath.Join(bin, "testers", "conformance.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(module, filepath.Join(dir, "everything.wasm")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{filepath.Join(dir, "everything.yaml"): everything, filepath.Join(dir, "streams.yaml"): everythingStreams, place: "blobs: {test: {bucket: BLOBS}}\n"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(), Users: permitted(t, dir, place)})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready")
	}
	nc, err := nats.Connect(s.ClientURL(), nats.UserInfo("admin", "admin"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "BLOBS"}); err != nil {
		t.Fatal(err)
	}
	as := func(role string, args ...string) []string {
		return append(args, "--nats", s.ClientURL(), "--user", role, "--password", role, "--inbox-prefix", "_INBOX_"+role)
	}
	log := logFile(t)
	h := &host{t: t, log: log, args: as("host", "up", "--dir", dir, "--data", t.TempDir(), "--cache", cache, "--name", "h1", "--config", place)}
	h.start()
	t.Cleanup(h.kill)

	exercise(t, nc, js)
	look(t, as)
	if _, status := h.signal(false); status.ExitStatus() != 0 {
		t.Errorf("the host ended with status %d", status.ExitStatus())
	}
	b, err := os.ReadFile(log.Name())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(strings.ToLower(line), "violation") {
			t.Errorf("the host was refused something: %s", line)
		}
	}
}

// exercise has the function do one of everything, and give one message up.
func exercise(t *testing.T, nc *nats.Conn, js jetstream.JetStream) {
	t.Helper()
	ask := func(body string) (answer, fails string) {
		msg, err := nc.Request("ask.everything", []byte(body), 5*time.Second)
		if err != nil {
			return "", err.Error()
		}
		return string(msg.Data), msg.Header.Get("Nats-Service-Error")
	}
	until(t, "the host is there", time.Minute, func() bool { answer, _ := ask("ack"); return answer == "ok" })
	for _, body := range []string{"kv some.key", "blob dir/key.txt", "blob-if dir/digits", "exec CREATE TABLE a (v TEXT)", "publish work.done.x"} {
		if answer, fails := ask(body); fails != "" {
			t.Errorf("%s: %q, %q", body, answer, fails)
		}
	}
	for _, body := range []string{"ack", "fail"} {
		until(t, "the stream is there", 20*time.Second, func() bool { _, err := js.Publish(t.Context(), "work.do.x", []byte(body)); return err == nil })
	}
	until(t, "a dead letter", 20*time.Second, func() bool {
		d, err := js.Stream(t.Context(), "DLQ")
		return err == nil && d.CachedInfo().State.Msgs == 1
	})
	until(t, "the schedule fires", 20*time.Second, func() bool {
		d, err := js.Stream(t.Context(), "PELTON_SCHEDULES")
		if err != nil {
			return false
		}
		c, err := d.Consumer(t.Context(), "everything-schedule")
		return err == nil && c.CachedInfo().AckFloor.Stream > 0
	})
}

// look has the other roles do theirs, and no more.
func look(t *testing.T, as func(role string, args ...string) []string) {
	t.Helper()
	for _, c := range []struct {
		args   []string
		status int
		wants  string
	}{
		{as("viewer", "ls"), 0, "everything"},
		{as("viewer", "info"), 0, "h1"},
		{as("viewer", "dlq", "ls"), 0, "max_deliver"},
		{as("viewer", "dlq", "show", "1"), 0, "work.do.x"},
		{as("viewer", "dlq", "redrive", "1"), 1, "pelton permissions prints what each role needs"},
		{as("viewer", "dlq", "purge", "1"), 1, "pelton permissions prints what each role needs"},
		{as("operator", "dlq", "redrive", "1"), 0, "1 redriven, 0 failed"},
	} {
		begin := time.Now()
		out, stderr, status := command(t, c.args...)
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("%v: took %s", c.args[:4], took)
		}
		if status != c.status || !strings.Contains(out+stderr, c.wants) {
			t.Errorf("%v: status %d, %s%s; want %d with %q", c.args[:4], status, out, stderr, c.status, c.wants)
		}
	}
}
