package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pelton-run/pelton/host"
)

// An outage uses up no attempts: after enough different messages in a row nothing
// is charged, one is tried at a time, at the schedule's last step, and the first
// success ends that.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := true
		f := newFunction(t, nil, func(c *host.Call) error {
			endAll(c, func(int) host.Outcome {
				if down {
					return host.Outcome{Disposition: host.Nak, Reason: "the store is down"}
				}
				return host.Outcome{Disposition: host.Ack}
			})
			return nil
		})
		pause := f.policy.last()
		batch, got := batchOf(BreakerAfter + 5)
		for i := range batch {
			if i < BreakerAfter-1 && len(f.Troubles()) > 0 {
				t.Fatalf("troubles after %d failures: %+v", i, f.Troubles())
			}
			f.Dispatch(t.Context(), batch[i:i+1])
		}
		for i, d := range got {
			want := "retry"
			if i >= BreakerAfter-1 {
				want = "retry for nothing"
			}
			if s := strings.Join(d.settled, ","); s != want {
				t.Errorf("message %d: settled %s, want %s", i, s, want)
			}
		}
		if all := f.Troubles(); len(all) != 1 || all[0].State != Degraded || !strings.Contains(all[0].Reason, "the store is down") {
			t.Errorf("troubles %+v", all)
		}
		probe := func() Admission {
			begin := time.Now()
			a, err := f.Admit(t.Context())
			if err != nil || a.Limit != 1 || a.Release == nil || time.Since(begin) != pause {
				t.Fatalf("admitted %+v after %s, %v; want one after %s", a, time.Since(begin), err, pause)
			}
			return a
		}
		a := probe()
		ctx, cancel := context.WithTimeout(t.Context(), 10*pause)
		defer cancel()
		if _, err := f.Admit(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second probe beside the first: %v", err)
		}
		f.Dispatch(t.Context(), batch[:1])
		a.Release()
		a = probe() // which failed, and so it waits again
		down = false
		f.Dispatch(t.Context(), batch[:1])
		a.Release()
		if a, err := f.Admit(t.Context()); err != nil || a.Release != nil || len(f.Troubles()) > 0 {
			t.Errorf("after a success: admitted %+v, %v, troubles %+v", a, err, f.Troubles())
		}
	})
}

// One message that fails for ever is not an outage, and neither is one success
// between any number of failures.
func TestBreakerStaysClosed(t *testing.T) {
	for _, tt := range []struct {
		name string
		next func(i int) (message int, acked bool)
	}{
		{"one message", func(int) (int, bool) { return 0, false }},
		{"a success between", func(i int) (int, bool) { return i, i%(BreakerAfter-1) == 0 }},
	} {
		batch, _ := batchOf(4 * BreakerAfter)
		acked := false
		f := newFunction(t, nil, func(c *host.Call) error {
			endAll(c, func(int) host.Outcome {
				if acked {
					return host.Outcome{Disposition: host.Ack}
				}
				return host.Outcome{Disposition: host.Nak}
			})
			return nil
		})
		for i := range batch {
			var n int
			n, acked = tt.next(i)
			f.Dispatch(t.Context(), batch[n:n+1])
			if len(f.Troubles()) > 0 {
				t.Fatalf("%s: %+v after %d", tt.name, f.Troubles(), i)
			}
		}
	}
}

// A full outbox takes no more messages, and says why; when it is sent, it does.
func TestOutboxFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		tx := &fakeTx{log: &log}
		for i := range MaxUnsent {
			tx.posted = append(tx.posted, host.Unsent{ID: int64(i + 1), Message: &host.Outgoing{Subject: "p"}})
		}
		sender := &fakeSender{log: &log, err: errors.New("no stream takes it")}
		grants := &host.Grants{Write: "d", Databases: map[string]host.Database{"d": fakeDB{tx: tx}}, Sender: sender}
		f := newFunction(t, grants, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { f.Run(ctx); close(done) }()
		time.Sleep(time.Second) // of the test's own clock
		if all := f.Troubles(); len(all) != 1 || all[0].State != Failing || !strings.Contains(all[0].Reason, fmt.Sprint(MaxUnsent)) {
			t.Errorf("troubles %+v", all)
		}
		soon, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, err := f.Admit(soon); err == nil {
			t.Error("a message was admitted")
		}
		sender.mended.Store(true)
		if _, err := f.Admit(t.Context()); err != nil || len(f.Troubles()) > 0 {
			t.Errorf("after it was sent: %v, %+v", err, f.Troubles())
		}
		cancel()
		<-done
	})
}
