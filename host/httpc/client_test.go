package httpc

import (
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
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
	c, err := New("test", grants, maxBody, secrets, netip.MustParsePrefix("127.0.0.0/8"))
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

// The request's key goes where the grant says, and no guest sets it.
func TestIdempotencyKey(t *testing.T) {
	var seen http.Header
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header }))
	defer s.Close()
	c := newClient(t, 1000, manifests.HTTPGrant{Origin: s.URL, Headers: map[string]string{"Idempotency-Key": "pelton-{{ idempotency_key }}"}})
	if !c.Keyed() {
		t.Error("the client is not keyed")
	}
	r := &host.Request{Method: "GET", URL: s.URL, Key: "$1abc", Headers: [][2]string{{"Idempotency-Key", "mine"}}}
	if _, err := c.Do(t.Context(), r); err != nil || len(seen["Idempotency-Key"]) != 1 || seen.Get("Idempotency-Key") != "pelton-$1abc" {
		t.Errorf("sent with %v, %v; want pelton-$1abc", seen["Idempotency-Key"], err)
	}
	if newClient(t, 1000, manifests.HTTPGrant{Origin: s.URL}).Keyed() {
		t.Error("a client without such a header is keyed")
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

// An address that is not public is reached by an origin that is named when the
// operator allows its network, and by {public: true} never. Nothing is connected to
// before that is known.
func TestNetworks(t *testing.T) {
	var arrived atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
	defer server.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	named := []manifests.HTTPGrant{{Origin: server.URL, Methods: []string{"GET"}}, {Origin: "http://localhost:" + port, Methods: []string{"GET"}}}
	public := []manifests.HTTPGrant{{Public: true, Methods: []string{"GET"}}}
	loopback, other := netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")
	for _, tt := range []struct {
		name   string
		grants []manifests.HTTPGrant
		allow  []netip.Prefix
		want   host.Errno
	}{
		{"named, allowed", named, []netip.Prefix{loopback}, 0},
		{"named, another network", named, []netip.Prefix{other}, host.Denied},
		{"named", named, nil, host.Denied},
		{"public, allowed", public, []netip.Prefix{loopback}, host.Denied},
		{"public", public, nil, host.Denied},
	} {
		c, err := New("f", tt.grants, 100, secrets, tt.allow...)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range []string{server.URL, "http://localhost:" + port, "http://localhost.:" + port} {
			before := arrived.Load()
			_, err := c.Do(t.Context(), &host.Request{Method: "GET", URL: u})
			if got := host.ErrnoOf(err); got != tt.want && err != nil || tt.want != 0 && err == nil {
				t.Errorf("%s: %s = %v", tt.name, u, err)
			}
			if tt.want != 0 && arrived.Load() != before {
				t.Errorf("%s: %s arrived", tt.name, u)
			}
		}
		c.Close()
	}
}

// Row 24 of the threats: spellings of addresses that are nobody's business.
func TestSpecialAddresses(t *testing.T) {
	c, err := New("f", []manifests.HTTPGrant{{Public: true, Methods: []string{"GET"}}}, 100, secrets)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, name := range []string{
		"127.0.0.1", "[::1]", "0.0.0.0", "[::]", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::7f00:1]", "2130706433", "0177.0.0.1", "0177.1",
		"127.1", "0x7f.1", "localhost", "localhost.", "LOCALHOST", "169.254.169.254", "[fd00:ec2::254]", "[fe80::1]", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1",
		"198.18.0.1", "192.0.0.1", "192.0.2.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "[2002:7f00:1::]", "[2001:db8::1]", "[ff02::1]", "[fc00::1]",
		"\u2487.0.0.1", "127\u30020\u30020\u30021", "[fe80::1%25eth0]", "allowed@127.0.0.1", "allowed\\@127.0.0.1", "127.0.0.1#@example.com",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		resp, err := c.Do(ctx, &host.Request{Method: "GET", URL: "http://" + name + ":1/"})
		cancel()
		if err == nil {
			t.Errorf("%s answers %d", name, resp.Status)
		}
		if errno := host.ErrnoOf(err); errno != host.Denied && errno != host.Invalid && errno != host.Unavailable {
			t.Errorf("%s = %v", name, err)
		}
	}
}
