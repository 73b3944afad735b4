package main

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/pelton-run/pelton/sdk"
	"github.com/pelton-run/pelton/sdk/sdktest"
)

// request makes a message that asks for n pages and some of them twice.
func request(n, repeats int, delivered uint64) *sdk.Msg {
	var urls []string
	for i := range n {
		urls = append(urls, fmt.Sprintf("https://x.example/%d", i))
	}
	urls = append(urls, urls[:repeats]...)
	body, _ := json.Marshal(map[string]any{"video_id": 1, "revision": 1, "urls": urls})
	return sdk.NewMsg("video.updated.s.x", nil, body).WithMetadata("stream", sdk.Metadata{Stream: "S", Sequence: sdk.SequencePair{Stream: 9}, NumDelivered: delivered})
}

// HTT-2: no call above the limit, each URL once, and after a failure only what
// is not yet confirmed.
func TestLimit(t *testing.T) {
	for limit, calls := range map[int]int{30: 9, 100: 3} {
		perCall = limit
		sent := map[string]int{}
		confirmed := map[string]int{}
		call := 0
		h := sdktest.New()
		h.OnFetch = func(r *sdk.Request) (*sdk.Response, error) {
			call++
			var body struct{ Files []string }
			if err := json.Unmarshal(r.Body, &body); err != nil || len(body.Files) > limit {
				t.Errorf("a call with %d URLs, %v", len(body.Files), err)
			}
			for _, u := range body.Files {
				sent[u]++
			}
			if limit == 30 && call == 4 {
				return sdktest.Response(500, nil, nil), nil
			}
			for _, u := range body.Files {
				confirmed[u]++
			}
			return sdktest.Response(200, nil, nil), nil
		}
		first := h.HandleBatch(t.Context(), handle, request(245, 5, 1))[0]
		if call != calls || len(sent) != 245 {
			t.Errorf("limit %d: %d calls with %d URLs, want %d with 245", limit, call, len(sent), calls)
		}
		if limit != 30 {
			continue
		}
		if first.Disposition != sdk.DispositionNak {
			t.Errorf("after a failed call: %+v, want nak", first)
		}
		if second := h.HandleBatch(t.Context(), handle, request(245, 5, 2))[0]; second.Disposition != sdk.DispositionAck || call != 10 {
			t.Errorf("the retry: %+v in call %d, want an ack in call 10", second, call)
		}
		for u, n := range sent {
			if confirmed[u] != 1 || n > 2 {
				t.Errorf("%s was sent %d times and confirmed %d times", u, n, confirmed[u])
			}
		}
		if len(h.Keys) != 0 {
			t.Errorf("progress is left behind: %v", h.Keys)
		}
	}
	perCall = limit("")
}

// HTT-1: what the server asks for is waited, in both forms; anything else
// leaves it to the manifest.
func TestWait(t *testing.T) {
	tests := []struct {
		status int
		after  string
		want   sdk.Disposition
		least  time.Duration
		most   time.Duration
	}{
		{429, "3", sdk.DispositionNak, 3 * time.Second, 3 * time.Second},
		{503, "3", sdk.DispositionNak, 3 * time.Second, 3 * time.Second},
		{429, time.Now().Add(4 * time.Second).UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT"), sdk.DispositionNak, 2 * time.Second, 4 * time.Second},
		{429, "soon", sdk.DispositionNak, 0, 0},
		{500, "", sdk.DispositionNak, 0, 0},
		{400, "", sdk.DispositionTerm, 0, 0},
		{403, "", sdk.DispositionNak, 0, 0},
		{200, "", sdk.DispositionAck, 0, 0},
	}
	for _, tt := range tests {
		h := sdktest.New()
		h.OnFetch = func(*sdk.Request) (*sdk.Response, error) {
			return sdktest.Response(tt.status, sdk.Header{"Retry-After": {tt.after}}, nil), nil
		}
		got := h.HandleBatch(t.Context(), handle, request(1, 0, 1))[0]
		if got.Disposition != tt.want || got.Delay < tt.least || got.Delay > tt.most {
			t.Errorf("%d with %q: %+v, want %d after %s to %s", tt.status, tt.after, got, tt.want, tt.least, tt.most)
		}
	}
}

// A URL that the CDN refuses takes nobody else's with it, and what was confirmed
// for one message is not taken for another's.
func TestRefusedURL(t *testing.T) {
	perCall = limit("")
	h := sdktest.New()
	purged := map[string]int{}
	h.OnFetch = func(r *sdk.Request) (*sdk.Response, error) {
		var body struct{ Files []string }
		json.Unmarshal(r.Body, &body)
		for _, u := range body.Files {
			if u == "not a url" {
				return sdktest.Response(400, nil, nil), nil
			}
		}
		for _, u := range body.Files {
			purged[u]++
		}
		return sdktest.Response(200, nil, nil), nil
	}
	msg := func(seq, delivered uint64, body string) *sdk.Msg {
		return sdk.NewMsg("video.updated.s.x", nil, []byte(body)).WithMetadata("stream", sdk.Metadata{Stream: "S", Sequence: sdk.SequencePair{Stream: seq}, NumDelivered: delivered})
	}
	got := h.HandleBatch(t.Context(), handle, msg(1, 1, `{"video_id":1,"revision":1}`), msg(2, 1, `{"video_id":2,"revision":1,"urls":["not a url"]}`), msg(3, 1, `{"video_id":3,"revision":1,"category":"news"}`))
	for i, want := range []sdk.Disposition{sdk.DispositionAck, sdk.DispositionTerm, sdk.DispositionAck} {
		if got[i].Disposition != want {
			t.Errorf("message %d: %+v, want %d", i, got[i], want)
		}
	}
	h.Keys["purge_progress/"+keyOf(msg(4, 2, ""))] = `["/category/news"]`
	before := purged["/category/news"]
	h.HandleBatch(t.Context(), handle, msg(4, 2, `{"video_id":4,"revision":1,"category":"news"}`), msg(5, 1, `{"video_id":5,"revision":1,"category":"news"}`))
	if purged["/category/news"] != before+1 {
		t.Error("a page was not purged after the newer event, since an older one had purged it")
	}
}

// Bad events do not stop the good ones of their batch.
func TestMixedBatch(t *testing.T) {
	h := sdktest.New()
	h.OnFetch = func(*sdk.Request) (*sdk.Response, error) { return sdktest.Response(200, nil, nil), nil }
	got := h.HandleBatch(t.Context(), handle, request(1, 0, 1), sdk.NewMsg("video.ingested.a.b", nil, []byte("{")), sdk.NewMsg("video.enriched.thumbnail.x", nil, nil))
	for i, want := range []sdk.Disposition{sdk.DispositionAck, sdk.DispositionTerm, sdk.DispositionAck} {
		if got[i].Disposition != want {
			t.Errorf("message %d: %+v, want %d", i, got[i], want)
		}
	}
	if len(h.Requests) != 1 {
		t.Errorf("%d calls, want 1", len(h.Requests))
	}
}
