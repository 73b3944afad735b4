package main

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/pelton-run/pelton/runtime/broker"
)

// draining is a host with a slow handler, one at a time, and a long ack_wait: what
// it does not give back nobody gets for a minute.
func draining(t *testing.T, work time.Duration, messages int, args ...string) (*ledger, *host) {
	l := newLedger(t, 1)
	l.replace("ledger.yaml", "ack_wait: 3s, batch: {max: 20, wait: 20ms}", "ack_wait: 60s")
	l.replace("ledger.yaml", "timeout: 10s", "timeout: 2m")
	l.slow.Store(int64(work))
	s, err := broker.Start("127.0.0.1:0", t.TempDir(), broker.DefaultSync, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	l.connect(s.URL())
	h := l.host(logFile(t), append([]string{"--nats", s.URL()}, args...)...)
	h.start()
	for i := range messages {
		n := i + 1 + i/6 // none of them a seventh
		l.good = append(l.good, n)
		publishUntil(t, l.js, fmt.Sprintf("work.%d", n), fmt.Sprint(n))
	}
	return l, h
}

// signal sends a signal, or one after another until the host ends, and returns how
// long that takes, and how it ended.
func (h *host) signal(again bool) (took time.Duration, status syscall.WaitStatus) {
	h.t.Helper()
	begin := time.Now()
	ended := make(chan struct{})
	go func() { h.cmd.Wait(); close(ended) }()
	tick := time.NewTicker(100 * time.Millisecond) // two at once are one
	defer tick.Stop()
	h.cmd.Process.Signal(syscall.SIGTERM)
	for {
		select {
		case <-ended:
			return time.Since(begin), h.cmd.ProcessState.Sys().(syscall.WaitStatus)
		case <-tick.C:
			if again {
				h.cmd.Process.Signal(syscall.SIGTERM)
			}
		}
	}
}

// OPS-2: a host that is told to stop finishes what runs, gives back what does not,
// and exits with 0; the next one goes on at once, and nothing is done twice.
func TestStopInOrder(t *testing.T) {
	t.Parallel()
	l, h := draining(t, 500*time.Millisecond, 20)
	until(t, "some are handled", 30*time.Second, func() bool { return l.count("SELECT count(*) FROM rows") >= 3 })
	took, status := h.signal(false)
	if took > 5*time.Second || status.ExitStatus() != 0 {
		t.Errorf("it took %s and ended with status %d", took, status.ExitStatus())
	}
	begin := time.Now()
	h.start()
	t.Cleanup(h.kill)
	until(t, "all are handled", 45*time.Second, func() bool { return l.count("SELECT count(*) FROM rows") == 20 })
	t.Logf("stopped in %s, the rest was done in %s", took, time.Since(begin))
	l.settled(20 * time.Second)
	l.check()
	for n, times := range l.posted {
		if times != 1 {
			t.Errorf("message %d was handled %d times", n, times)
		}
	}
}

// A handler that does not end within the grace period is ended, and its message
// goes to the next host at once.
func TestStopInGrace(t *testing.T) {
	t.Parallel()
	l, h := draining(t, time.Minute, 1, "--grace", "2s")
	until(t, "the handler runs", 30*time.Second, func() bool { return l.begun.Load() > 0 })
	if took, status := h.signal(false); took > 5*time.Second || status.ExitStatus() != 0 {
		t.Errorf("it took %s and ended with status %d", took, status.ExitStatus())
	}
	l.slow.Store(0)
	begin := time.Now()
	h.start()
	t.Cleanup(h.kill)
	until(t, "the message is handled", 10*time.Second, func() bool { return l.count("SELECT count(*) FROM rows") == 1 })
	t.Logf("handled %s after the start", time.Since(begin))
}

// A second signal ends the host at once.
func TestStopAtOnce(t *testing.T) {
	t.Parallel()
	l, h := draining(t, time.Minute, 1, "--grace", "50s")
	until(t, "the handler runs", 30*time.Second, func() bool { return l.begun.Load() > 0 })
	if took, status := h.signal(true); took > 3*time.Second || !status.Signaled() {
		t.Errorf("it took %s and ended with %v", took, status)
	}
}
