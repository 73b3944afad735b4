package manifests

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParseDuration(t *testing.T) {
	tests := []struct {
		in   string
		want time.Duration
		ok   bool
	}{
		{"30s", 30 * time.Second, true}, {"1h30m", 90 * time.Minute, true}, {"250ms", 250 * time.Millisecond, true},
		{"7d", 7 * 24 * time.Hour, true}, {"1.5s", 1500 * time.Millisecond, true}, {"0s", 0, true},
		{"30", 0, false}, {"1h30", 0, false}, {"-1s", 0, false}, {"", 0, false}, {"s", 0, false}, {"1e3s", 0, false}, {"1 s", 0, false}, {"9999999d", 0, false},
	}
	for _, tt := range tests {
		got, err := ParseDuration(tt.in)
		if (err == nil) != tt.ok || got.Std() != tt.want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v, ok %v", tt.in, got, err, tt.want, tt.ok)
		}
	}
}

// What is printed reads back as the same.
func TestUnitsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Duration(rapid.Int64Range(0, int64(MaxDuration)/1e6).Draw(t, "ms") * 1e6)
		if got, err := ParseDuration(d.String()); err != nil || got != d {
			t.Fatalf("%s reads back as %v, %v", d, got, err)
		}
		s := Size(rapid.Int64Range(0, 1<<50).Draw(t, "size"))
		if got, err := ParseSize(s.String()); err != nil || got != s {
			t.Fatalf("%s reads back as %v, %v", s, got, err)
		}
	})
}

func TestSubjects(t *testing.T) {
	matches := []struct {
		pattern, subject string
		want             bool
	}{
		{"a.*", "a.b", true}, {"a.*", "a.b.c", false}, {"a.>", "a.b.c", true}, {"a.>", "a", false}, {"a.*.c", "a.b.c", true},
		{"a.*", "a.>", false}, {">", "x", true}, {"a", "b", false}, {"a.b", "a", false}, {"video.enriched.thumbnail.*", "video.enriched.thumbnail", false},
	}
	for _, tt := range matches {
		if got := SubjectMatches(tt.pattern, tt.subject); got != tt.want {
			t.Errorf("SubjectMatches(%q, %q) = %v, want %v", tt.pattern, tt.subject, got, tt.want)
		}
	}
	for _, bad := range []string{"out.*", "out..x", ".out", "out.", "out x", "", "a.>", "a\x00b", "a\nb"} {
		if CheckSubject(bad, true) == "" {
			t.Errorf("CheckSubject(%q) finds nothing wrong", bad)
		}
	}
	for _, reserved := range []string{"$JS.API.x", "_INBOX.x", "pelton.ctl.admin.h.stop", "$SRV.PING", "*.x", ">"} {
		if !ReservedSubject(reserved) {
			t.Errorf("ReservedSubject(%q) = false", reserved)
		}
	}
}

func TestCron(t *testing.T) {
	for in, want := range map[string]string{"@every 5m": "@every 300s", "0 3 * * *": "0 0 3 * * *", "1 2 3 * * *": "1 2 3 * * *", "@hourly": "@hourly"} {
		if got := (&Trigger{Schedule: in}).Cron(); got != want {
			t.Errorf("Cron(%q) = %q, want %q", in, got, want)
		}
	}
}
