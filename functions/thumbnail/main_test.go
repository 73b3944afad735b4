package main

import (
	"testing"
	"time"

	"github.com/pelton-run/pelton/sdk"
	"github.com/pelton-run/pelton/sdk/sdktest"
)

func TestJudgement(t *testing.T) {
	const good = `{"video_id":1,"revision":1,"external_id":"abc","thumb_url":"https://x.example/a.jpg"}`
	tests := []struct {
		name, body string
		status     int
		header     sdk.Header
		err        error
		renderErr  error
		want       sdk.Disposition
		delay      time.Duration
	}{
		{name: "well", body: good, status: 200, want: sdk.DispositionAck},
		{name: "404", body: good, status: 404, want: sdk.DispositionTerm},
		{name: "410", body: good, status: 410, want: sdk.DispositionTerm},
		{name: "redirect", body: good, status: 302, want: sdk.DispositionTerm},
		{name: "503", body: good, status: 503, want: sdk.DispositionNak},
		{name: "503 with a wait", body: good, status: 503, header: sdk.Header{"Retry-After": {"3"}}, want: sdk.DispositionNak, delay: 3 * time.Second},
		{name: "429", body: good, status: 429, want: sdk.DispositionNak},
		{name: "unreachable", body: good, err: &sdk.HostError{Errno: sdk.ErrUnavailable}, want: sdk.DispositionNak},
		{name: "timeout", body: good, err: &sdk.HostError{Errno: sdk.ErrCancelled}, want: sdk.DispositionNak},
		{name: "not granted", body: good, err: &sdk.HostError{Errno: sdk.ErrDenied}, want: sdk.DispositionTerm},
		{name: "no picture", body: good, status: 200, renderErr: &sdk.HostError{Errno: sdk.ErrUnsupported}, want: sdk.DispositionTerm},
		{name: "giant", body: good, status: 200, renderErr: &sdk.HostError{Errno: sdk.ErrTooLarge}, want: sdk.DispositionTerm},
		{name: "host is stopping", body: good, status: 200, renderErr: &sdk.HostError{Errno: sdk.ErrCancelled}, want: sdk.DispositionNak},
		{name: "no url", body: `{"video_id":1,"revision":1}`, want: sdk.DispositionTerm},
		{name: "climbing name", body: `{"video_id":1,"revision":1,"external_id":"../x","thumb_url":"u"}`, want: sdk.DispositionTerm},
		{name: "wildcard name", body: `{"video_id":1,"revision":1,"external_id":"*","thumb_url":"u"}`, want: sdk.DispositionTerm},
		{name: "empty", body: "", want: sdk.DispositionTerm},
	}
	for _, tt := range tests {
		h := sdktest.New()
		h.OnFetch = func(*sdk.Request) (*sdk.Response, error) {
			return sdktest.Response(tt.status, tt.header, []byte("picture")), tt.err
		}
		h.OnRender = func(_ []byte, targets []sdk.Target) (*sdk.Rendered, error) {
			r := &sdk.Rendered{}
			for _, target := range targets {
				r.Pictures = append(r.Pictures, sdk.Picture{Width: target.Width, Height: 1, Body: sdk.BufferOf([]byte("webp"))})
			}
			return r, tt.renderErr
		}
		got := h.Handle(t.Context(), handle, sdk.NewMsg("video.ingested.s.abc", nil, []byte(tt.body)))[0]
		if got.Disposition != tt.want || got.Delay != tt.delay {
			t.Errorf("%s: %+v, want %d after %s", tt.name, got, tt.want, tt.delay)
		}
		if stored := len(h.Blobs); (stored == 3) != (tt.want == sdk.DispositionAck) {
			t.Errorf("%s: %d thumbnails are stored", tt.name, stored)
		}
	}
}
