package httpc

import (
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
)

func secrets(name string) (string, error) {
	if name == "token" {
		return "s3cret", nil
	}
	return "", fmt.Errorf("secret %s is not set", name)
}

func newClient(t *testing.T, maxBody int64, grants ...manifests.HTTPGrant) *Client {
	t.Helper()
	for i := range grants {
		if grants[i].Methods == nil {
			grants[i].Methods = []string{"GET", "HEAD"}
		}
	}
	c, err := New("test", grants, maxBody, secrets)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestPolicy(t *testing.T) {
	grants := []manifests.HTTPGrant{
		{Origin: "https://api.example.com", Methods: []string{"POST"}, Paths: []string{"/v4/*", "/exact"}},
		{Origin: "https://*.ytimg.com", Methods: []string{"GET"}},
		{Origin: "http://localhost:8080", Methods: []string{"GET"}},
	}
	c := newClient(t, 100, grants...)
	tests := []struct {
		method, url string
		want        bool
	}{
		{"POST", "https://api.example.com/v4/purge", true},
		{"POST", "https://API.example.com:443/v4/purge", true},
		{"POST", "https://api.example.com./v4/purge", true},
		{"POST", "https://api.example.com/exact", true},
		{"GET", "https://api.example.com/v4/purge", false},
		{"POST", "http://api.example.com/v4/purge", false},
		{"POST", "https://api.example.com:8443/v4/purge", false},
		{"POST", "https://api.example.com/v3/purge", false},
		{"POST", "https://api.example.com/v4/../v3/x", false},
		{"POST", "https://api.example.com/v4/%2e%2e/v3/x", false},
		{"POST", "https://api.example.com/v4/%2E%2E%2Fv3", false},
		{"POST", "https://api.example.com.evil.org/v4/x", false},
		{"GET", "https://i.ytimg.com/a.jpg", true},
		{"GET", "https://a.b.ytimg.com/a.jpg", true},
		{"GET", "https://ytimg.com/a.jpg", false},
		{"GET", "https://evilytimg.com/a.jpg", false},
		{"GET", "http://localhost:8080/", true},
		{"GET", "http://localhost/", false},
	}
	for _, tt := range tests {
		u, err := target(tt.url)
		if err != nil {
			t.Errorf("%s: %v", tt.url, err)
			continue
		}
		if got := c.ruleFor(tt.method, u) != nil; got != tt.want {
			t.Errorf("%s %s is granted: %v, want %v", tt.method, tt.url, got, tt.want)
		}
	}
	for _, bad := range []string{"", "ftp://x/", "https://user@api.example.com/", "https:///x", "https://a b/", "https://api.example.com\\@evil/", "http://[fe80::1%25eth0]/", "//x", "https://a\r\nb/"} {
		if _, err := target(bad); host.ErrnoOf(err) != host.Invalid {
			t.Errorf("target(%q) = %v, want invalid", bad, err)
		}
	}
}

func TestRequest(t *testing.T) {
	var seen *http.Request
	var body string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r
		b := make([]byte, 100)
		n, _ := r.Body.Read(b)
		body = string(b[:n])
		w.Header().Set("Retry-After", "3")
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, "http://elsewhere.example/", http.StatusFound)
		case "/big":
			w.Write(make([]byte, 2000))
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			z.Write([]byte(strings.Repeat("x", 900)))
			z.Close()
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			z.Write(make([]byte, 1<<20))
			z.Close()
		default:
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, "short and stout")
		}
	}))
	defer s.Close()
	c := newClient(t, 1000, manifests.HTTPGrant{Origin: s.URL, Methods: []string{"GET", "POST"}, Headers: map[string]string{"Authorization": "Bearer {{secret.token}}"}})
	do := func(r host.Request) (*host.HTTPResponse, error) { return c.Do(t.Context(), &r) }

	resp, err := do(host.Request{Method: "POST", URL: s.URL + "/x?y=z", Headers: [][2]string{{"X-Mine", "1"}, {"Authorization", "mine"}}, Body: []byte("hello")})
	if err != nil {
		t.Fatal(err)
	}
	if resp.Status != 418 || string(resp.Body) != "short and stout" || body != "hello" {
		t.Errorf("got %d %q for %q", resp.Status, resp.Body, body)
	}
	if got := seen.Header.Get("Authorization"); got != "Bearer s3cret" {
		t.Errorf("Authorization = %q, want the secret and not the guest's", got)
	}
	if got := seen.Header.Get("X-Mine"); got != "1" {
		t.Errorf("X-Mine = %q, want 1", got)
	}
	if resp, err := do(host.Request{Method: "GET", URL: s.URL + "/redirect"}); err != nil || resp.Status != 302 {
		t.Errorf("redirect = %v, %v; want it handed to the guest", resp, err)
	}
	if _, err := do(host.Request{Method: "GET", URL: s.URL + "/big"}); host.ErrnoOf(err) != host.TooLarge {
		t.Errorf("big answer = %v, want too large", err)
	}
	if resp, err := do(host.Request{Method: "GET", URL: s.URL + "/gzip"}); err != nil || len(resp.Body) != 900 {
		t.Errorf("gzip = %v, want 900 bytes decoded", err)
	}
	if _, err := do(host.Request{Method: "GET", URL: s.URL + "/bomb"}); host.ErrnoOf(err) != host.TooLarge {
		t.Errorf("gzip bomb = %v, want too large", err)
	}
	for _, h := range [][2]string{{"Host", "x"}, {"content-length", "1"}, {"Proxy-Authorization", "x"}, {"X-Forwarded-For", "x"}} {
		if _, err := do(host.Request{Method: "GET", URL: s.URL, Headers: [][2]string{h}}); host.ErrnoOf(err) != host.Denied {
			t.Errorf("header %s = %v, want denied", h[0], err)
		}
	}
	if _, err := do(host.Request{Method: "GET", URL: s.URL, Headers: [][2]string{{"X", "a\r\nY: b"}}}); host.ErrnoOf(err) != host.Invalid {
		t.Errorf("header with a line break = %v, want invalid", err)
	}
}

func TestErrors(t *testing.T) {
	if _, err := New("f", []manifests.HTTPGrant{{Origin: "https://x.example", Headers: map[string]string{"A": "{{secret.other}}"}}}, 1, secrets); err == nil || !strings.Contains(err.Error(), "other") {
		t.Errorf("missing secret = %v, want an error that names it", err)
	}
	c := newClient(t, 100, manifests.HTTPGrant{Origin: "http://127.0.0.1:1"})
	_, err := c.Do(t.Context(), &host.Request{Method: "GET", URL: "http://127.0.0.1:1/?key=hidden"})
	if host.ErrnoOf(err) != host.Unavailable || strings.Contains(err.Error(), "hidden") {
		t.Errorf("refused connection = %v, want unavailable without the query", err)
	}
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer slow.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := newClient(t, 100, manifests.HTTPGrant{Origin: slow.URL}).Do(ctx, &host.Request{Method: "GET", URL: slow.URL}); host.ErrnoOf(err) != host.Cancelled {
		t.Errorf("slow answer = %v, want cancelled", err)
	}
}

// public reaches no address of this machine or network, by whatever name.
func TestPublic(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { t.Error("it was reached") }))
	defer s.Close()
	port := s.URL[strings.LastIndex(s.URL, ":"):]
	c := newClient(t, 100, manifests.HTTPGrant{Public: true})
	for _, name := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"} {
		if _, err := c.Do(t.Context(), &host.Request{Method: "GET", URL: "http://" + name + port + "/"}); err == nil {
			t.Errorf("%s is public", name)
		}
	}
}

func FuzzTarget(f *testing.F) {
	f.Add("https://api.example.com/v4/../x")
	f.Add("http://a%2eb/")
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := target(raw)
		if err != nil {
			return
		}
		if u.User != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") {
			t.Errorf("target(%q) = %v", raw, u)
		}
		again, err := target(u.String())
		if err != nil || again.Host != u.Host {
			t.Errorf("target(%q) is %q, which reads as %v, %v", raw, u, again, err)
		}
	})
}
