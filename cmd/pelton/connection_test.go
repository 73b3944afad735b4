package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A cluster that asks for a user, with JetStream in a domain of its own, is reached
// by the nats CLI's contexts, by its environment variables and by flags, by hosts and
// by commands alike.
func TestConnection(t *testing.T) {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(), JetStreamDomain: "hub",
		Username: "host", Password: "secret of the test",
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready")
	}
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, "nats", "context"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"url": %q, "user": "host", "password": "secret of the test", "jetstream_domain": "hub"}`, s.ClientURL())
	if err := os.WriteFile(filepath.Join(home, "nats", "context", "hub.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CONFIG_HOME", home)

	dir, log := t.TempDir(), logFile(t)
	for name, text := range map[string]string{"exits.yaml": exitsManifest, "streams.yaml": fmt.Sprintf(ledgerStreams, 1, 1, 1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	module, err := filepath.Abs(filepath.Join(bin, "testers", "crash.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(module, filepath.Join(dir, "exits.wasm")); err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, log: log, args: []string{"up", "--dir", dir, "--data", t.TempDir(), "--cache", cache, "--context", "hub"}}
	h.start()
	t.Cleanup(h.kill)

	reach := []string{"--nats", s.ClientURL(), "--user", "host", "--password", "secret of the test"}
	until(t, "the host is there", time.Minute, func() bool {
		out, _, status := command(t, "ls", "--context", "hub")
		return status == 0 && strings.Contains(out, "exits")
	})
	for _, c := range []struct {
		name   string
		args   []string
		env    map[string]string
		status int
		wants  string
	}{
		{"flags", append([]string{"ls"}, reach...), nil, 0, "exits"},
		{"environment", []string{"ls"}, map[string]string{"NATS_URL": s.ClientURL(), "NATS_USER": "host", "NATS_PASSWORD": "secret of the test"}, 0, "exits"},
		{"context of the environment", []string{"ls"}, map[string]string{"NATS_CONTEXT": "hub"}, 0, "exits"},
		{"dead letters in the domain", []string{"dlq", "ls", "--context", "hub"}, nil, 0, ""},
		{"dead letters with the flag", append([]string{"dlq", "ls", "--js-domain", "hub"}, reach...), nil, 0, ""},
		{"streams in the domain", []string{"info", "--context", "hub"}, nil, 0, "WORK"},
		{"a flag before the context", []string{"ls", "--context", "hub", "--password", "wrong"}, nil, 1, "Authorization Violation"},
		{"no user", []string{"ls", "--nats", s.ClientURL()}, nil, 1, "Authorization Violation"},
		{"no such context", []string{"ls", "--context", "nowhere"}, nil, 1, "read context nowhere"},
		{"domain and prefix", []string{"dlq", "ls", "--js-domain", "hub", "--js-api-prefix", "x"}, nil, 2, "js-api-prefix"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			out, errs, status := command(t, c.args...)
			if status != c.status || !strings.Contains(out+errs, c.wants) {
				t.Errorf("status = %d, want %d with %q:\n%s%s", status, c.status, c.wants, out, errs)
			}
			if strings.Contains(errs, "secret of the test") {
				t.Errorf("the password was printed:\n%s", errs)
			}
		})
	}
	t.Run("help hides the password", func(t *testing.T) {
		t.Setenv("NATS_PASSWORD", "secret of the test")
		if out, errs, _ := command(t, "ls", "--help"); strings.Contains(out+errs, "secret of the test") {
			t.Error("the password was printed")
		}
	})

	nc, err := nats.Connect(s.ClientURL(), nats.UserInfo("host", "secret of the test"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.NewWithDomain(nc, "hub")
	if err != nil {
		t.Fatal(err)
	}
	publishUntil(t, js, "exit.1", "exit")
	until(t, "its message, which it ends with, is a dead letter", time.Minute, func() bool {
		out, _, status := command(t, "dlq", "ls", "--context", "hub")
		return status == 0 && strings.Contains(out, "exit.1")
	})
}
