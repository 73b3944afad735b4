package main

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/pelton-run/pelton/runtime/broker"
)

// crashes are the places where a host dies, run after run, as PELTON_CRASH has
// them; after the last a host runs on, and the books are right.
var crashes = []string{
	"pulled#5", "marked#2", "handler#17", "inbox checked#2", "handled#2", "judged#2",
	"done marked#2", "before commit#2", "after commit#2", "before send#1", "before send#2", "between sends#7", "after send#2",
	"before ack#4", "after ack#4", "before charge#1", "before nak#1", "before nak#2",
	"before letter#1", "before term#1", "before term#2", "after term#2", "sweep#1", "before forget#1",
	"handler#9 before suspect#1", "handler#9 before marks cleared#1", "before ack=ledger/work.1#1 known#1", "after commit#1 known#1 after ack#2",
	"before send#1 sweep#1 before send#1", "before term=ledger/work.9#1 known#1",
	"TERM before give back#1",
}

// A host that dies anywhere leaves nothing undone and nothing done twice: with
// its own server, which dies with it, and with one that goes on.
func TestCrashPoints(t *testing.T) {
	for _, places := range crashes {
		for _, embedded := range []bool{true, false} {
			name := places + " cluster"
			if embedded {
				name = places + " embedded"
			}
			t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				crashAt(t, places, embedded)
			})
		}
	}
}

func crashAt(t *testing.T, places string, embedded bool) {
	const messages = 60
	l := newLedger(t, 1)
	log := logFile(t)
	var h *host
	if embedded {
		port := freePort(t)
		l.connect("nats://" + port)
		h = l.host(log, "--listen", port)
	} else {
		s, err := broker.Start("127.0.0.1:0", t.TempDir(), broker.DefaultSync, zerolog.Nop())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		l.connect(s.URL())
		h = l.host(log, "--nats", s.URL())
	}
	var signal syscall.Signal
	if rest, found := strings.CutPrefix(places, "TERM "); found {
		places, signal = rest, syscall.SIGTERM
	}
	var published func()
	for _, place := range split(places) {
		h.env = []string{"PELTON_CRASH=" + place}
		h.start()
		if published == nil { // the host may die before it has all
			published = l.publishing(0, messages)
		}
		if signal != 0 { // with most of the messages still waiting
			published()
			l.slow.Store(int64(50 * time.Millisecond))
			until(t, "the first message", 20*time.Second, func() bool { return l.count("SELECT 1") == 1 && l.posts() > 0 })
			h.cmd.Process.Signal(signal)
			l.slow.Store(0)
		}
		waitKilled(t, h, place)
	}
	h.env = nil
	h.start()
	t.Cleanup(h.kill)
	published()
	l.settled(90 * time.Second)
	l.check()
}

// A message whose handler ends the host within a moment is given up on, with the
// embedded server, that dies with the host and forgets how often it delivered
// what; every neighbour in its batches of a hundred is handled once, and none is
// given up on for its sake.
func TestKiller(t *testing.T) {
	const killer, starts = "ledger/work.57", 3
	l := newLedger(t, 1)
	l.replace("ledger.yaml", "max: 20", "max: 100")
	port := freePort(t)
	l.connect("nats://" + port)
	h := l.host(logFile(t), "--listen", port)
	h.env = []string{"PELTON_CRASH=handler=" + killer}
	var published []func()
	for start := range starts {
		h.start()
		published = append(published, l.publishing(100*start, 100*start+100)) // the stream stays busy
		waitKilled(t, h, killer)
	}
	h.start()
	t.Cleanup(h.kill)
	for _, wait := range published {
		wait()
	}
	l.settled(time.Minute)
	l.killed(57)
	l.check()
	if reason := l.reason("dlq.work.57"); reason != "crash" {
		t.Errorf("the reason of the dead letter is %q, want crash", reason)
	}
}

// split takes places apart; their names have spaces, each ends with a number.
func split(places string) (all []string) {
	for places != "" {
		name, rest, _ := strings.Cut(places, "#")
		number, rest, _ := strings.Cut(rest, " ")
		all, places = append(all, name+"#"+number), rest
	}
	return all
}

// waitKilled waits until the host has died where it was to.
func waitKilled(t *testing.T, h *host, place string) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- h.cmd.Wait() }()
	select {
	case err := <-ended:
		exit, ok := err.(*exec.ExitError)
		if !ok || !exit.Sys().(syscall.WaitStatus).Signaled() {
			t.Fatalf("the host ended with %v, and did not die at %q", err, place)
		}
	case <-time.After(60 * time.Second):
		h.cmd.Process.Kill()
		<-ended
		t.Fatalf("the host did not get to %q", place)
	}
}
