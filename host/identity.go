package host

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"sort"
	"strconv"
)

// fingerprint is a hash over texts, each with its length in front.
type fingerprint struct{ hash.Hash }

func (f fingerprint) part(s string) {
	var n [4]byte
	binary.LittleEndian.PutUint32(n[:], uint32(len(s)))
	f.Write(n[:])
	f.Write([]byte(s))
}

func (f fingerprint) String() string { return base64.RawURLEncoding.EncodeToString(f.Sum(nil)) }

// fingerprint begins one with the function and the message, with its epoch.
func (c *Call) fingerprint(d *Delivery) fingerprint {
	f := fingerprint{sha256.New()}
	f.part(c.Function)
	f.part(c.identity(d))
	return f
}

// count adds which of several identical ones a delivery's it is.
func (d *Delivery) count(f fingerprint) {
	content := string(f.Sum(nil))
	if d.occurs == nil {
		d.occurs = map[string]int{}
	}
	d.occurs[content]++
	f.part(strconv.Itoa(d.occurs[content]))
}

// msgID names a publish by what it says: function, message with its epoch, subject,
// headers, body, and which of several identical ones it is. A retry that
// publishes the same again is dropped by the stream, one that publishes
// something else is not. With a key of the author's, the key alone counts.
func (c *Call) msgID(d *Delivery, m *Outgoing, key string) string {
	f := c.fingerprint(d)
	f.part(key)
	if key != "" {
		return f.String()
	}
	f.part(m.Subject)
	f.part(string(m.Data))
	names := make([]string, 0, len(m.Headers))
	for name := range m.Headers {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		f.part(name)
		f.part(strconv.Itoa(len(m.Headers[name])))
		for _, v := range m.Headers[name] {
			f.part(v)
		}
	}
	d.count(f)
	return f.String()
}

// requestKey names a request by what it asks, as msgID does for a publish: method,
// URL and body. Headers are no part of it: they may hold the time.
func (c *Call) requestKey(d *Delivery, r *Request) string {
	f := c.fingerprint(d)
	f.part("http")
	f.part(r.Method)
	f.part(r.URL)
	f.part(string(r.Body))
	d.count(f)
	return f.String()
}

// identity is the message's, or that of the first and last of the batch. A
// request has none, so its inbox and time stand in.
func (c *Call) identity(d *Delivery) string {
	if d.Message == nil && len(c.deliveries) > 0 {
		return c.identity(&c.deliveries[0]) + "-" + c.identity(&c.deliveries[len(c.deliveries)-1])
	}
	if id := d.Message.Identity(); id != "" {
		return id
	}
	return d.Message.Reply + "/" + strconv.FormatInt(d.Message.Timestamp.UnixNano(), 36)
}
