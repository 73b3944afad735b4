package httpc

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"

	"code.dny.dev/ssrf"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
)

// Limits of one client that no manifest changes.
const (
	MaxHeaderBytes = 64 << 10
	MaxHeaders     = 64 // of a request
	DialTimeout    = 10 * time.Second
	HeaderTimeout  = 60 * time.Second // until the response's headers are there
	MaxConns       = 64               // to one host
)

// Secrets looks a secret up by its logical name.
type Secrets func(name string) (string, error)

// Client sends the requests of one function. It has a transport of its own, so
// that no other function's connections are used. It is safe for concurrent use.
type Client struct {
	rules     []rule
	maxBody   int64
	userAgent string
	keyed     bool         // some rule has a header with the request's key
	exact     *http.Client // for origins that are named
	public    *http.Client // for any public address: what it dials is checked
}

var _ host.HTTP = (*Client)(nil)

// New makes the client of a function. Secrets are looked up now, so that one
// that is missing is found before the first request. allow are the networks, beside
// the public addresses, that origins which are named may be in.
func New(function string, grants []manifests.HTTPGrant, maxBody int64, secrets Secrets, allow ...netip.Prefix) (*Client, error) {
	c := &Client{maxBody: maxBody, userAgent: "pelton/1 (" + function + ")"}
	for _, g := range grants {
		headers, err := fill(g.Headers, secrets)
		if err != nil {
			return nil, err
		}
		r, err := newRule(g, headers)
		if err != nil {
			return nil, fmt.Errorf("parse origin %q: %w", g.Origin, err)
		}
		c.rules = append(c.rules, r)
		c.keyed = c.keyed || r.keyed()
	}
	// The guard looks at the address that is dialled, after every resolution and
	// redirection of names: nothing private, local or reserved passes. Each has a
	// transport of its own, so that no connection of the one is used for the other.
	v4, v6 := families(allow)
	c.exact = client(ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...)))
	c.public = client(ssrf.New(ssrf.WithAnyPort()))
	return c, nil
}

func families(all []netip.Prefix) (v4, v6 []netip.Prefix) {
	for _, p := range all {
		if p.Addr().Is4() {
			v4 = append(v4, p)
		} else {
			v6 = append(v6, p)
		}
	}
	return v4, v6
}

func client(guard *ssrf.Guardian) *http.Client {
	dialer := &net.Dialer{Timeout: DialTimeout, Control: guard.Safe}
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                  nil, // a proxy from the environment would void the policy
			DialContext:            dialer.DialContext,
			TLSHandshakeTimeout:    DialTimeout,
			ResponseHeaderTimeout:  HeaderTimeout,
			MaxResponseHeaderBytes: MaxHeaderBytes,
			MaxConnsPerHost:        MaxConns,
			MaxIdleConnsPerHost:    MaxConns,
			IdleConnTimeout:        90 * time.Second,
			DisableCompression:     true, // decoded here, under the limit
			ForceAttemptHTTP2:      true,
		},
		// A redirect is the guest's to follow, with a request that is checked again.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close closes the connections that are idle.
func (c *Client) Close() {
	c.exact.CloseIdleConnections()
	c.public.CloseIdleConnections()
}

var secretPattern = regexp.MustCompile(`\{\{\s*secret\.([^{}\s]+)\s*\}\}`)

func fill(headers map[string]string, secrets Secrets) (map[string]string, error) {
	filled := make(map[string]string, len(headers))
	for name, value := range headers {
		var missing error
		filled[name] = secretPattern.ReplaceAllStringFunc(value, func(m string) string {
			secret, err := secrets(secretPattern.FindStringSubmatch(m)[1])
			if err != nil {
				missing = err
			}
			return secret
		})
		if missing != nil {
			return nil, fmt.Errorf("fill in header %s: %w", name, missing)
		}
	}
	return filled, nil
}

// keyPattern stands for the request's key in a grant's headers.
var keyPattern = regexp.MustCompile(`\{\{\s*idempotency_key\s*\}\}`)

func (r *rule) keyed() bool {
	for _, value := range r.headers {
		if keyPattern.MatchString(value) {
			return true
		}
	}
	return false
}

// Keyed implements host.HTTP.
func (c *Client) Keyed() bool { return c.keyed }

// Do sends one request if a grant permits it, and reads its body whole.
func (c *Client) Do(ctx context.Context, r *host.Request) (*host.HTTPResponse, error) {
	u, err := target(r.URL)
	if err != nil {
		return nil, err
	}
	method := strings.ToUpper(r.Method)
	rule := c.ruleFor(method, u)
	if rule == nil {
		return nil, host.Errorf(host.Denied, "http: %s %s://%s%s is not granted", method, u.Scheme, u.Host, u.EscapedPath())
	}
	req, err := c.request(ctx, method, u, r, rule)
	if err != nil {
		return nil, err
	}
	sender := c.exact
	if rule.public {
		sender = c.public
	}
	resp, err := sender.Do(req)
	if err != nil {
		return nil, transportError(ctx, u, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, host.Errorf(host.Unavailable, "http: %s switches protocols, which nobody asked for", u.Host)
	}
	return c.read(ctx, u, resp)
}

func (c *Client) ruleFor(method string, u *url.URL) *rule {
	for i := range c.rules {
		if c.rules[i].permits(method, u) {
			return &c.rules[i]
		}
	}
	return nil
}

func (c *Client) request(ctx context.Context, method string, u *url.URL, r *host.Request, rule *rule) (*http.Request, error) {
	if len(r.Headers) > MaxHeaders {
		return nil, host.Errorf(host.TooLarge, "http: the request has %d headers, the limit is %d", len(r.Headers), MaxHeaders)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, host.Errorf(host.Invalid, "http: the request cannot be made")
	}
	for _, h := range r.Headers {
		if err := checkHeader(h[0], h[1]); err != nil {
			return nil, err
		}
		req.Header.Add(h[0], h[1])
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", c.userAgent)
	}
	req.Header.Set("Accept-Encoding", "gzip")
	for name, value := range rule.headers {
		if c.keyed {
			value = keyPattern.ReplaceAllLiteralString(value, r.Key)
		}
		req.Header.Set(name, value)
	}
	return req, nil
}

// transportError says what went wrong without the URL's query, which may hold
// what should not be logged.
func transportError(ctx context.Context, u *url.URL, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedPort) || errors.Is(err, ssrf.ErrProhibitedNetwork) {
		return host.Errorf(host.Denied, "http: %s is not a public address; the operator can allow its network in pelton.yaml, networks.allow", u.Host)
	}
	if ctx.Err() != nil {
		return host.Errorf(host.Cancelled, "http: %s: %v", u.Host, context.Cause(ctx))
	}
	return host.Errorf(host.Unavailable, "http: %s: %v", u.Host, err)
}

// read reads the response, decoded, up to the limit.
func (c *Client) read(ctx context.Context, u *url.URL, resp *http.Response) (*host.HTTPResponse, error) {
	body := io.Reader(resp.Body)
	if strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		z, err := gzip.NewReader(resp.Body)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, host.Errorf(host.Unavailable, "http: %s: decode gzip: %v", u.Host, err)
		}
		if err == nil {
			body = z
		}
		resp.Header.Del("Content-Encoding")
		resp.Header.Del("Content-Length")
	}
	data, err := io.ReadAll(io.LimitReader(body, c.maxBody+1))
	if err != nil {
		return nil, transportError(ctx, u, err)
	}
	if int64(len(data)) > c.maxBody {
		return nil, host.Errorf(host.TooLarge, "http: the answer of %s has more bytes than limits.http_body %d", u.Host, c.maxBody)
	}
	answer := &host.HTTPResponse{Status: resp.StatusCode, Body: data}
	for name, values := range resp.Header {
		for _, v := range values {
			answer.Headers = append(answer.Headers, [2]string{name, v})
		}
	}
	return answer, nil
}
