package sdk

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// Request is an HTTP request to an origin that the manifest grants. Headers
// with secrets are the manifest's and filled in by the host.
type Request struct {
	Method string // GET when empty
	URL    string
	Header Header
	Body   []byte
}

// Response is the answer to a request. Redirects are not followed.
type Response struct {
	Status int
	Header Header // names in the canonical form, such as Retry-After
	Body   Buffer
}

// Fetch sends a request and waits for the answer. A status of 400 and above is
// not an error; see Response.Status.
func Fetch(ctx context.Context, r *Request) (*Response, error) { return fetch(ctx, r) }

// Fetched is what became of one of several requests: a Response, or why there is none.
type Fetched struct {
	*Response
	Err error
}

// FetchAll sends requests beside each other, in one call of the host, and waits for
// all answers; results are in the order of the requests. The error is why none was
// sent: one of them is above the manifest's limits, say.
func FetchAll(ctx context.Context, requests ...*Request) ([]Fetched, error) {
	if len(requests) == 0 {
		return nil, nil
	}
	return fetchAll(ctx, requests)
}

func (r *Request) method() string {
	if r.Method == "" {
		return "GET"
	}
	return r.Method
}

// RetryAfter reads the Retry-After header in both of its forms, seconds and
// HTTP date (RFC 9110 §10.2.3). ok is false without the header, and for one
// that is neither.
func (r *Response) RetryAfter(now time.Time) (wait time.Duration, ok bool) {
	v := strings.TrimSpace(r.Header.Get("Retry-After"))
	if n, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(n) * time.Second, true
	}
	// The three forms of RFC 9110 §5.6.7.
	for _, layout := range []string{"Mon, 02 Jan 2006 15:04:05 GMT", "Monday, 02-Jan-06 15:04:05 MST", "Mon Jan _2 15:04:05 2006"} {
		if at, err := time.Parse(layout, v); err == nil {
			return max(0, at.Sub(now)), true
		}
	}
	return 0, false
}
