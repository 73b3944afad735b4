package httpc

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
)

// rude serves each connection with what answer writes, whatever was asked.
func rude(t *testing.T, answer func(conn net.Conn)) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				bufio.NewReader(conn).ReadString('\n')
				answer(conn)
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// Row 27 of the threats: whatever the other side does, the guest gets an error of a
// kind in its time, and memory has a bound.
func TestHostileServers(t *testing.T) {
	write := func(conn net.Conn, text string) bool { _, err := fmt.Fprint(conn, text); return err == nil }
	for name, tt := range map[string]struct {
		answer func(net.Conn)
		want   host.Errno
	}{
		"endless body": {func(c net.Conn) {
			write(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			for write(c, "400\r\n"+strings.Repeat("x", 1024)+"\r\n") {
			}
		}, host.TooLarge},
		"a byte at a time": {func(c net.Conn) {
			write(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
			for write(c, "x") {
				time.Sleep(50 * time.Millisecond)
			}
		}, host.Cancelled},
		"endless headers": {func(c net.Conn) {
			write(c, "HTTP/1.1 200 OK\r\n")
			for write(c, "X-Filler: "+strings.Repeat("x", 1000)+"\r\n") {
			}
		}, host.Unavailable},
		"one endless line": {func(c net.Conn) {
			for write(c, strings.Repeat("x", 1000)) {
			}
		}, host.Unavailable},
		"shorter than it says": {func(c net.Conn) { write(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nxy") }, host.Unavailable},
		"nonsense":             {func(c net.Conn) { write(c, "\x00\x01\x02 hello\r\n\r\n") }, host.Unavailable},
		"nothing":              {func(net.Conn) {}, host.Unavailable},
		"not gzip": {func(c net.Conn) {
			write(c, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc")
		}, host.Unavailable},
		"switched protocols": {func(c net.Conn) {
			write(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
		}, host.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := rude(t, tt.answer)
			c := newClient(t, 10_000, manifests.HTTPGrant{Origin: url})
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			resp, err := c.Do(ctx, &host.Request{Method: "GET", URL: url})
			if host.ErrnoOf(err) != tt.want || err == nil {
				t.Errorf("got %+v, %v; want %v", resp, err, tt.want)
			}
		})
	}
}

// SEC-1: a redirect is handed to the guest, wherever it leads: nothing follows it,
// and no secret goes along.
func TestRedirects(t *testing.T) {
	var arrived atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
	defer elsewhere.Close()
	var to string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusFound)
	}))
	defer s.Close()
	c := newClient(t, 100, manifests.HTTPGrant{Origin: s.URL, Headers: map[string]string{"X-Api-Key": "{{secret.token}}"}})
	for _, to = range []string{elsewhere.URL, "http://169.254.169.254/", "file:///etc/passwd", s.URL + "/again", "//" + strings.TrimPrefix(elsewhere.URL, "http://"), "gopher://x"} {
		resp, err := c.Do(t.Context(), &host.Request{Method: "GET", URL: s.URL})
		if err != nil || resp.Status != http.StatusFound {
			t.Errorf("to %s: %+v, %v", to, resp, err)
		}
		if _, err := c.Do(t.Context(), &host.Request{Method: "GET", URL: to}); err == nil && to != s.URL+"/again" {
			t.Errorf("the guest may follow to %s", to)
		}
	}
	if arrived.Load() > 0 {
		t.Error("the other server was asked")
	}
}

// A proxy of the environment would see the requests, and make the check of
// addresses void.
func TestNoProxy(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the proxy was asked") }))
	defer proxy.Close()
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "direct") }))
	defer s.Close()
	c := newClient(t, 100, manifests.HTTPGrant{Origin: s.URL})
	if resp, err := c.Do(t.Context(), &host.Request{Method: "GET", URL: s.URL}); err != nil || string(resp.Body) != "direct" {
		t.Errorf("got %+v, %v", resp, err)
	}
}

// Row 28 of the threats: what would split or smuggle a request is refused before
// anything is dialled.
func TestSmuggling(t *testing.T) {
	var arrived atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
	defer s.Close()
	c := newClient(t, 100, manifests.HTTPGrant{Origin: s.URL, Methods: []string{"GET", "POST"}})
	for _, r := range []host.Request{
		{Method: "GET /x HTTP/1.1\r\nX: y", URL: s.URL}, {Method: "CONNECT", URL: s.URL}, {Method: "TRACE", URL: s.URL}, {Method: "", URL: s.URL}, {Method: "PUT", URL: s.URL},
		{Method: "GET", URL: s.URL + "/\r\nX: y"}, {Method: "GET", URL: s.URL + "/ HTTP/1.1"}, {Method: "GET", URL: s.URL + "\\@evil"}, {Method: "GET", URL: strings.Replace(s.URL, "http://", "http://u:p@", 1)},
		{Method: "GET", URL: s.URL, Headers: [][2]string{{"A", "b\x00"}}}, {Method: "GET", URL: s.URL, Headers: [][2]string{{"A b", "c"}}}, {Method: "GET", URL: s.URL, Headers: [][2]string{{"", "c"}}},
		{Method: "GET", URL: s.URL, Headers: [][2]string{{"Transfer-Encoding", "chunked"}}}, {Method: "GET", URL: s.URL, Headers: [][2]string{{"tRaNsFeR-eNcOdInG", "x"}}}, {Method: "GET", URL: s.URL, Headers: [][2]string{{"Expect", "100-continue"}}},
		{Method: "GET", URL: s.URL, Headers: make([][2]string, MaxHeaders+1)}, {Method: "GET", URL: s.URL + "/" + strings.Repeat("x", MaxURL)},
	} {
		if resp, err := c.Do(t.Context(), &r); err == nil {
			t.Errorf("%q %.60q %q answers %d", r.Method, r.URL, r.Headers, resp.Status)
		}
	}
	if arrived.Load() > 0 {
		t.Errorf("%d requests arrived", arrived.Load())
	}
}
