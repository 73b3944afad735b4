package engine

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pelton-run/pelton/host"
)

// REL-5: functions with the same module share its code; one that goes takes
// nothing from the others.
func TestSameModule(t *testing.T) {
	e := newEngine(t)
	stays := newPool(t, e, "conformance", grantAll, Settings{Max: 1})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if o, _, err := invoke(t, stays, 10*time.Second, "ack"); err != nil || o.Disposition != host.Ack {
				t.Errorf("the one that stays: %+v, %v", o, err)
				return
			}
		}
	}()
	for range 50 {
		module, err := e.Compile(t.Context(), NewBinary(guest(t, "conformance")), manifest(t, grantAll))
		if err != nil {
			t.Fatal(err)
		}
		p, err := NewPool(module, Settings{Max: 1, Memory: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if o, _, err := invoke(t, p, 10*time.Second, "ack"); err != nil || o.Disposition != host.Ack {
			t.Errorf("the one that goes: %+v, %v", o, err)
		}
		p.Close()
		module.Close(t.Context())
	}
	close(stop)
	<-done
	if len(e.codes) != 1 {
		t.Errorf("%d modules are kept, want 1", len(e.codes))
	}
}

// Whoever asks for the same module at the same time waits for one compilation.
func TestCompileOnce(t *testing.T) {
	e := newEngine(t)
	var mu sync.Mutex
	var modules []*Module
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			m, err := e.Compile(t.Context(), NewBinary(guest(t, "crash")), manifest(t, ""))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			modules = append(modules, m)
		})
	}
	group.Wait()
	for _, m := range modules {
		if m.code != modules[0].code {
			t.Error("a module was compiled twice")
		}
		m.Close(t.Context())
	}
	if len(e.codes) != 0 {
		t.Errorf("%d modules are kept after their last user", len(e.codes))
	}
}

// Code without an instance goes out of memory, and comes back for the next one,
// with or without a cache on disk.
func TestUnload(t *testing.T) {
	for _, dir := range []string{cacheDir, ""} {
		e, err := New(t.Context(), Config{CacheDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		a := &assembly{bodies: [][]byte{{0x01}}}
		module, err := e.Compile(t.Context(), NewBinary(a.bytes()), manifest(t, ""))
		if err != nil {
			t.Fatal(err)
		}
		p, err := NewPool(module, Settings{Max: 1, Memory: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, _, err := invoke(t, p, time.Second, "x"); err != nil {
				t.Errorf("cache %q: %v", dir, err)
			}
			module.code.unload()
			if module.code.compiled == nil {
				t.Error("code with an instance was unloaded")
			}
			p.mu.Lock()
			p.idle[0].since = time.Time{}
			p.mu.Unlock()
			p.reap()
			module.code.unload()
			if module.code.compiled != nil {
				t.Error("code without an instance stays")
			}
		}
		p.Close()
		module.Close(t.Context())
		e.Close(t.Context())
	}
}

// The cache on disk has a limit: the oldest code goes first.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"old", "older", "new"} {
		file := filepath.Join(dir, "version", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, make([]byte, 100), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-[]time.Duration{2, 3, 1}[i] * time.Hour)
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		most int64
		left []string
	}{{300, []string{"old", "older", "new"}}, {250, []string{"old", "new"}}, {100, []string{"new"}}, {0, nil}} {
		if err := prune(dir, step.most); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"old", "older", "new"} {
			_, err := os.Stat(filepath.Join(dir, "version", name))
			want := false
			for _, l := range step.left {
				want = want || l == name
			}
			if (err == nil) != want {
				t.Errorf("with %d bytes: %s is there: %v, want %v", step.most, name, err == nil, want)
			}
		}
	}
}
