package runtime

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pelton-run/pelton/host"
)

func TestDispose(t *testing.T) {
	p := Policy{MaxDeliver: 3, Backoff: []time.Duration{time.Second, 5 * time.Second}, MaxDelay: time.Minute, For: time.Hour}
	nak := func(delay time.Duration) host.Outcome {
		return host.Outcome{Disposition: host.Nak, Delay: delay, Reason: "down"}
	}
	tests := []struct {
		name    string
		attempt int
		age     time.Duration
		o       host.Outcome
		want    Verdict
	}{
		{"ack", 1, 0, host.Outcome{Disposition: host.Ack}, Verdict{Action: Ack}},
		{"ack on the last attempt", 3, 2 * time.Hour, host.Outcome{Disposition: host.Ack}, Verdict{Action: Ack}},
		{"term", 1, 0, host.Outcome{Disposition: host.Term, Reason: "bad"}, Verdict{Action: GiveUp, Reason: ReasonTerm, Error: "bad"}},
		{"first failure", 1, 0, nak(0), Verdict{Action: Retry, Charged: true, Delay: time.Second, Error: "down"}},
		{"second failure", 2, 0, nak(0), Verdict{Action: Retry, Charged: true, Delay: 5 * time.Second, Error: "down"}},
		{"last failure", 3, 0, nak(0), Verdict{Action: GiveUp, Reason: ReasonMaxDeliver, Error: "attempt 3 of 3: down"}},
		{"beyond the last", 9, 0, nak(0), Verdict{Action: GiveUp, Reason: ReasonMaxDeliver, Error: "attempt 9 of 3: down"}},
		{"asked for", 1, 0, nak(7 * time.Second), Verdict{Action: Retry, Charged: true, Delay: 7 * time.Second, Error: "down"}},
		{"asked for too much", 1, 0, nak(24 * time.Hour), Verdict{Action: Retry, Charged: true, Delay: time.Minute, Error: "down"}},
		{"asked for on the last", 3, 0, nak(time.Second), Verdict{Action: GiveUp, Reason: ReasonMaxDeliver, Error: "attempt 3 of 3: down"}},
		{"out of time", 1, time.Hour, nak(0), Verdict{Action: GiveUp, Reason: ReasonRetryFor, Error: "attempt 1, 1h0m0s after it was stored: down"}},
		{"never settled", 1, 0, host.Outcome{}, Verdict{Action: Retry, Charged: true, Delay: time.Second}},
		{"not its doing", 9, 9 * time.Hour, host.Outcome{Disposition: host.Nak, Blameless: true}, Verdict{Action: Retry, Delay: 5 * time.Second}},
	}
	for _, tt := range tests {
		if got := p.Dispose(Record{Attempts: tt.attempt - 1}, tt.attempt, tt.age, tt.o, 0); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// No retry is early, none later than the jitter allows, none beyond the limit
// of attempts; and a message is given up on or tried again, never dropped.
func TestDisposeLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{MaxDeliver: rapid.IntRange(1, 20).Draw(t, "max"), MaxDelay: time.Duration(rapid.Int64Range(1, 1e12).Draw(t, "maxDelay"))}
		for _, b := range rapid.SliceOfN(rapid.Int64Range(1, 1e12), 1, 8).Draw(t, "backoff") {
			p.Backoff = append(p.Backoff, time.Duration(b))
		}
		attempt := rapid.IntRange(1, 30).Draw(t, "attempt")
		asked := time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "asked"))
		v := p.Dispose(Record{Attempts: attempt - 1}, 1, 0, host.Outcome{Disposition: host.Nak, Delay: asked}, rapid.Float64Range(0, 0.999).Draw(t, "jitter"))
		if (v.Action == GiveUp) != (attempt >= p.MaxDeliver) {
			t.Fatalf("attempt %d of %d: %+v", attempt, p.MaxDeliver, v)
		}
		if v.Action != Retry {
			return
		}
		want := p.Backoff[min(attempt, len(p.Backoff))-1]
		if asked > 0 {
			want = min(asked, p.MaxDelay)
		}
		if v.Delay < want || float64(v.Delay) > float64(want)*(1+Jitter)+1 {
			t.Fatalf("delay %s for %s", v.Delay, want)
		}
	})
}

func TestHistogram(t *testing.T) {
	var h Histogram
	if got := h.Quantile(0.5); got != 0 {
		t.Errorf("quantile of nothing = %s, want 0", got)
	}
	for i := 1; i <= 1000; i++ {
		h.Add(time.Duration(i) * time.Millisecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond, 1: time.Second} {
		if got := h.Quantile(q); got > want || float64(got) < 0.87*float64(want) {
			t.Errorf("quantile %v = %s, want just below %s", q, got, want)
		}
	}
	h.Add(-1) // a clock that went back
	h.Add(1 << 62)
}
