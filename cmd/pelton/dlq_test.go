package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Dead letters are listed, read, redriven once their cause is mended, and then are
// gone; what was handled is handled once.
func TestDLQ(t *testing.T) {
	const messages = 6 // none of them a seventh, which is refused once more
	l := newLedger(t, 1)
	l.replace("ledger.yaml", "max_deliver: 5", "max_deliver: 1")
	l.redriven = true
	l.status.Store(http.StatusServiceUnavailable)
	port := freePort(t)
	l.connect("nats://" + port)
	h := l.host(logFile(t), "--listen", port)
	h.start()
	t.Cleanup(h.kill)
	for n := range messages {
		l.publish(n + 1)
	}
	dlq := func(want int, args ...string) string {
		t.Helper()
		out, errs, status := command(t, append(append([]string{"dlq"}, args...), "--nats", l.url)...)
		if status != want {
			t.Fatalf("pelton dlq %v: status %d, want %d\n%s%s", args, status, want, out, errs)
		}
		return out
	}
	type letter struct {
		Sequence              uint64
		Function, Subject     string
		Error, Reason, Stream string
	}
	list := func(args ...string) (all []letter) {
		t.Helper()
		if err := json.Unmarshal([]byte(dlq(0, append([]string{"ls", "--json"}, args...)...)), &all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	until(t, "all are given up on", 30*time.Second, func() bool { return len(list()) == messages })
	for _, x := range list("--function", "ledger", "--reason", "max_deliver", "--subject", "work.*", "--since", "1h") {
		if x.Function != "ledger" || x.Stream != "WORK" || !strings.Contains(x.Error, "status 503") {
			t.Errorf("letter %+v", x)
		}
	}
	if n := len(list("--function", "other")) + len(list("--reason", "term")) + len(list("--until", "1h")); n != 0 {
		t.Errorf("%d letters go through filters that none matches", n)
	}
	first := fmt.Sprint(list()[0].Sequence)
	if out := dlq(0, "show", first); !strings.Contains(out, "status 503") || !strings.Contains(out, "work.1") {
		t.Errorf("show prints\n%s", out)
	}
	if out := dlq(0, "show", first, "--body"); out != "1" {
		t.Errorf("the body is %q", out)
	}
	if out := dlq(1, "redrive", first, "--direct"); !strings.Contains(out, "failed again: attempt 1 of 1: status 503") || len(list()) != messages {
		t.Errorf("redriven while the cause is there:\n%s", out)
	}
	l.status.Store(0)
	if out := dlq(0, "redrive", "--all", "--dry-run"); !strings.Contains(out, fmt.Sprint(messages, " would be redriven")) || len(list()) != messages {
		t.Errorf("dry run:\n%s", out)
	}
	if out := dlq(0, "redrive", first, "--direct"); !strings.Contains(out, "1 redriven, 0 failed") {
		t.Errorf("redriven straight to the function:\n%s", out)
	}
	dlq(1, "redrive", first, "--direct")
	if out := dlq(0, "redrive", "--function", "ledger"); !strings.Contains(out, fmt.Sprint(messages-1, " redriven, 0 failed")) {
		t.Errorf("redriven to the subjects:\n%s", out)
	}
	l.settled(30 * time.Second)
	l.check()
	if out := dlq(0, "ls"); out != "no dead letters\n" {
		t.Errorf("at the end there are\n%s", out)
	}
	for want, args := range map[int][][]string{
		2: {{"redrive"}, {"purge"}, {"redrive", "1", "--all"}, {"show", "x"}, {"ls", "--since", "yesterday"}, {"purge", "--all", "--function", "f"}},
		1: {{"show", "99"}, {"purge", "99"}, {"redrive", "99"}},
		0: {{"purge", "--all"}, {"redrive", "--all", "--json"}},
	} {
		for _, a := range args {
			dlq(want, a...)
		}
	}
}
