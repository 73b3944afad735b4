//go:build !wasip1

package sdk_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/pelton-run/pelton/sdk"
	"github.com/pelton-run/pelton/sdk/sdktest"
)

func TestDispositions(t *testing.T) {
	cause := errors.New("cause")
	tests := []struct {
		name string
		err  error
		want sdktest.Outcome
	}{
		{"nil", nil, sdktest.Outcome{Disposition: sdk.DispositionAck}},
		{"any error", cause, sdktest.Outcome{Disposition: sdk.DispositionNak, Reason: "cause"}},
		{"term", sdk.Term(cause), sdktest.Outcome{Disposition: sdk.DispositionTerm, Reason: "cause"}},
		{"delay", sdk.NakWithDelay(cause, time.Second), sdktest.Outcome{Disposition: sdk.DispositionNak, Delay: time.Second, Reason: "cause"}},
		{"term without a cause", sdk.Term(nil), sdktest.Outcome{Disposition: sdk.DispositionTerm, Reason: "no reason given"}},
	}
	for _, tt := range tests {
		h := sdktest.New()
		got := h.Handle(t.Context(), func(context.Context, *sdk.Msg) error { return tt.err }, sdk.NewMsg("a", nil, nil))
		if got[0] != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got[0], tt.want)
		}
	}
	if !errors.Is(sdk.Term(cause), cause) {
		t.Error("Term hides its cause")
	}
}

// A message that fails, or whose handler panics, does not touch the others.
func TestEach(t *testing.T) {
	h := sdktest.New()
	got := h.Handle(t.Context(), func(_ context.Context, m *sdk.Msg) error {
		switch m.Subject() {
		case "b":
			panic("oh")
		case "c":
			return sdk.Term(errors.New("no"))
		}
		return nil
	}, sdk.NewMsg("a", nil, nil), sdk.NewMsg("b", nil, nil), sdk.NewMsg("c", nil, nil), sdk.NewMsg("d", nil, nil))
	for i, want := range []sdk.Disposition{sdk.DispositionAck, sdk.DispositionNak, sdk.DispositionTerm, sdk.DispositionAck} {
		if got[i].Disposition != want {
			t.Errorf("message %d: %+v, want %d", i, got[i], want)
		}
	}
	if got[1].Reason != "panic: oh" {
		t.Errorf("reason = %q, want the panic", got[1].Reason)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		value string
		want  time.Duration
		ok    bool
	}{
		{"3", 3 * time.Second, true}, {" 120 ", 2 * time.Minute, true}, {"86400", 24 * time.Hour, true},
		{"Mon, 30 Nov 2026 12:00:04 GMT", 4 * time.Second, true}, {"Monday, 30-Nov-26 12:00:04 GMT", 4 * time.Second, true},
		{"Mon Nov 30 12:00:04 2026", 4 * time.Second, true}, {"Mon, 30 Nov 2026 11:00:00 GMT", 0, true},
		{"soon", 0, false}, {"", 0, false}, {"-1", 0, false}, {"1.5", 0, false}, {"99999999999999", 0, false},
	}
	for _, tt := range tests {
		r := sdktest.Response(429, sdk.Header{"Retry-After": {tt.value}}, nil)
		if got, ok := r.RetryAfter(now); got != tt.want || ok != tt.ok {
			t.Errorf("Retry-After %q = %s, %v; want %s, %v", tt.value, got, ok, tt.want, tt.ok)
		}
	}
}

func TestCalls(t *testing.T) {
	h := sdktest.New()
	h.OnQuery = func(s sdktest.Statement) (*sdk.Rows, error) {
		return sdk.NewRows([]string{"n", "s", "b", "f", "z"}, int64(7), "x", []byte("y"), 1.5, nil), nil
	}
	got := h.Handle(t.Context(), func(ctx context.Context, m *sdk.Msg) error {
		var n int
		var s string
		var b []byte
		var f float64
		var z string
		if err := sdk.SQLite("d").QueryRow(ctx, "SELECT ?", []any{1}, &n, &s, &b, &f, &z); err != nil {
			return err
		}
		if n != 7 || s != "x" || string(b) != "y" || f != 1.5 || z != "" {
			t.Errorf("scanned %d %q %q %v %q", n, s, b, f, z)
		}
		if _, err := sdk.KeyValue("B").Create(ctx, "k", []byte("v")); err != nil {
			return err
		}
		if _, err := sdk.KeyValue("B").Create(ctx, "k", []byte("v")); !errors.Is(err, sdk.ErrConflict) {
			t.Errorf("a second create = %v, want conflict", err)
		}
		if err := sdk.Blobs("s").PutBytes(ctx, "key", "text/plain", []byte("body")); err != nil {
			return err
		}
		slog.InfoContext(ctx, "hello", "a", 1, slog.Group("g", "b", 2))
		return sdk.Publish(ctx, "out", m.Data())
	}, sdk.NewMsg("in", nil, []byte("data")))
	if got[0].Disposition != sdk.DispositionAck {
		t.Fatalf("got %+v", got[0])
	}
	if len(h.Published) != 1 || string(h.Published[0].Data) != "data" || string(h.Blobs["s/key"].Data) != "body" {
		t.Errorf("published %v, stored %v", h.Published, h.Blobs)
	}
	if len(h.Log) != 1 || h.Log[0].Text != "hello" || h.Log[0].Attrs[1] != [2]string{"g.b", "2"} {
		t.Errorf("log = %v", h.Log)
	}
}

// Without a stand-in a call says what is missing, and nothing crashes.
func TestNoHost(t *testing.T) {
	if err := sdk.Publish(t.Context(), "a", nil); err == nil || !strings.Contains(err.Error(), "sdktest") {
		t.Errorf("got %v, want an error that names sdktest", err)
	}
}
