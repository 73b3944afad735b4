package up

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// SQL-6: of a batch of a hundred with one bad message ninety-nine are committed
// together, the one is a dead letter, and each was delivered once.
func TestOneBadOfAHundred(t *testing.T) {
	const bad = 57
	f := newFolder(t).write("streams.yaml", "streams:\n  - {name: WORK, subjects: [work.>], max_age: 1h}\n  - {name: DONE, subjects: [done.*], max_age: 1h}\n").
		add("ledger", "testers/ledger", "name: ledger\ntriggers: [{stream: WORK, batch: {max: 100, wait: 2s}}]\ngrants:\n  sqlite: {ledger: {mode: write}}\n  publish: [done.*]\n  http: [{public: true, methods: [POST]}]\n")
	b := start(t, f, nil)
	until(t, "it is ready", 10*time.Second, func() bool { return b.figures("ledger").State == "ok" && len(b.figures("ledger").Triggers) == 1 })
	for n := 1; n <= 100; n++ {
		body := fmt.Sprint(n)
		if n == bad {
			body = "bad " + body
		}
		b.publish(fmt.Sprintf("work.%d", n), body)
	}
	v := b.done("ledger", 99)
	until(t, "the bad one is given up on", 10*time.Second, func() bool { v = b.figures("ledger"); return v.DeadLetters == 1 })
	if v.Delivered != 100 || v.Redelivered != 0 || v.Invocations > 2 || v.Nak != 0 {
		t.Errorf("%d delivered, %d again, in %d invocations, %d retried; want 100 once in one", v.Delivered, v.Redelivered, v.Invocations, v.Nak)
	}
	if l := b.letters("ledger"); len(l) != 1 || l[fmt.Sprintf("dlq.work.%d", bad)].reason == "" {
		t.Errorf("dead letters %+v", l)
	}
	s, err := b.js.Stream(t.Context(), "DONE")
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(">"))
	if err != nil || len(info.State.Subjects) != 99 || info.State.Msgs != 99 || info.State.Subjects[fmt.Sprintf("done.%d", bad)] != 0 {
		t.Errorf("%d published on %d subjects, %v; want 99", info.State.Msgs, len(info.State.Subjects), err)
	}
}
