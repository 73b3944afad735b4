package host

import (
	"context"
	"testing"
	"time"
)

// sent takes whatever is published and asked for.
type sent struct{}

func (*sent) Keyed() bool { return true }
func (*sent) Do(context.Context, *Request) (*HTTPResponse, error) {
	return &HTTPResponse{Status: 200}, nil
}
func (*sent) Check(context.Context, *Outgoing) error { return nil }
func (*sent) Publish(context.Context, *Outgoing) (PubAck, error) {
	return PubAck{}, nil
}

func numbered(function string, sequence uint64, headers map[string][]string) *Message {
	return &Message{Subject: "a", Stream: "S", StreamSeq: sequence, StreamCreated: time.Unix(1, 0), Consumer: function, Headers: headers}
}

// A message that is handled again asks with the same keys, in whatever order; what
// differs in anything has another one.
func TestRequestKeys(t *testing.T) {
	keys := func(sequence uint64, requests ...*Request) (keys []string) {
		c := NewCall(t.Context(), "f", &Grants{HTTP: &sent{}}, Limits{HTTPRequests: 100, Tickets: 100, Buffers: 1 << 20}, nil, []*Message{numbered("f", sequence, nil)})
		defer c.Close()
		for _, r := range requests {
			body, err := c.AddBuffer(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			q := *r
			if _, err := c.HTTPStart(BatchID+1, &q, body); err != nil {
				t.Fatal(err)
			}
			keys = append(keys, q.Key)
		}
		return keys
	}
	a, b := &Request{Method: "POST", URL: "https://x/a", Body: []byte("1")}, &Request{Method: "POST", URL: "https://x/a", Body: []byte("2")}
	first, again := keys(1, a, b, a), keys(1, b, a, a)
	if first[0] != again[1] || first[1] != again[0] || first[2] != again[2] {
		t.Errorf("keys %v and %v, want the same for the same", first, again)
	}
	seen := map[string]bool{}
	for _, k := range append(first, keys(2, a, &Request{Method: "PUT", URL: a.URL, Body: a.Body}, &Request{Method: "POST", URL: "https://x/b", Body: a.Body})...) {
		if k == "" || seen[k] {
			t.Errorf("key %q comes twice, or is none", k)
		}
		seen[k] = true
	}
}

// Each publish has one hop more than the message that it is for, and a chain ends.
func TestHops(t *testing.T) {
	for _, tt := range []struct {
		header []string
		want   string // "" when it is refused
	}{
		{nil, "1"}, {[]string{"1"}, "2"}, {[]string{"2"}, "3"}, {[]string{"3"}, ""}, {[]string{"4"}, ""}, {[]string{"1000"}, ""},
		{[]string{"nonsense"}, "1"}, {[]string{"-5"}, "1"}, {[]string{"99999999999999999999"}, "1"}, {[]string{}, "1"},
	} {
		for _, batch := range []bool{false, true} {
			id := BatchID + 1
			if batch {
				id = BatchID
			}
			c := NewCall(t.Context(), "f", &Grants{Publish: &sent{}}, Limits{Publishes: 10, PublishSize: 10, Tickets: 10, Hops: 3}, nil,
				[]*Message{numbered("f", 1, map[string][]string{HopsHeader: tt.header}), numbered("f", 2, nil)})
			own := map[string][]string{"X": {"y"}}
			m := &Outgoing{Subject: "b", Headers: own}
			_, err := c.PublishStart(id, m, "")
			if tt.want == "" && ErrnoOf(err) != Limit || tt.want != "" && (err != nil || m.Headers[HopsHeader][0] != tt.want) {
				t.Errorf("after %v, of a batch %v: %v with %v, want %q", tt.header, batch, err, m.Headers, tt.want)
			}
			if len(own) != 1 {
				t.Errorf("the guest's headers became %v", own)
			}
			c.Close()
		}
	}
}

// The hops are no part of a message's id: a redelivery by another way is the same.
func TestHopsAreNoIdentity(t *testing.T) {
	id := func(hops string) string {
		c := NewCall(t.Context(), "f", &Grants{Publish: &sent{}}, Limits{Publishes: 10, PublishSize: 10, Tickets: 10, Hops: 16}, nil,
			[]*Message{numbered("f", 1, map[string][]string{HopsHeader: {hops}})})
		defer c.Close()
		m := &Outgoing{Subject: "b"}
		if _, err := c.PublishStart(BatchID+1, m, ""); err != nil {
			t.Fatal(err)
		}
		return m.MsgID
	}
	if a, b := id("1"), id("2"); a != b || a == "" {
		t.Errorf("ids %q and %q, want the same", a, b)
	}
}
