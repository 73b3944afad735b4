package host

import (
	"strconv"
	"time"
)

// Message is one message as a handler sees it. It is immutable.
type Message struct {
	Trigger string // the name of the trigger that took it
	Subject string
	Reply   string // where a request wants its answer
	Headers map[string][]string
	Data    []byte

	Stream        string // "" for a request
	StreamCreated time.Time
	Epoch         string // of a replay; "" for live traffic
	Consumer      string
	StreamSeq     uint64
	ConsumerSeq   uint64
	NumDelivered  uint64 // from 1
	NumPending    uint64 // behind it
	Timestamp     time.Time
}

// Identity names the message for ever: its stream, the stream's creation time,
// its sequence there, and the epoch of a replay. Two streams of one name that followed each other
// differ. Requests have no identity.
func (m *Message) Identity() string {
	if m.Stream == "" {
		return ""
	}
	b := make([]byte, 0, 64)
	b = append(b, m.Stream...)
	b = append(b, '@')
	b = strconv.AppendInt(b, m.StreamCreated.UnixNano(), 36)
	b = append(b, '/')
	b = strconv.AppendUint(b, m.StreamSeq, 10)
	if m.Epoch != "" {
		b = append(b, '/')
		b = append(b, m.Epoch...)
	}
	return string(b)
}

// Disposition is how a delivery ends.
type Disposition uint8

// The dispositions. The numbers are part of the ABI.
const (
	Unsettled Disposition = 0 // the handler has not said
	Ack       Disposition = 1 // done
	Nak       Disposition = 2 // again later
	Term      Disposition = 3 // never again: to the dead letters
)

// String returns the disposition's name.
func (d Disposition) String() string {
	switch d {
	case Ack:
		return "ack"
	case Nak:
		return "nak"
	case Term:
		return "term"
	}
	return "unsettled"
}

// Outcome is what a handler made of one delivery.
type Outcome struct {
	Disposition Disposition
	Delay       time.Duration // with Nak: what the handler asked for; 0 leaves it to the manifest
	Reason      string        // the handler's error
	Blameless   bool          // with Nak: it failed for nothing of its own doing, so no attempt is charged
}

// Response is a handler's answer to a request.
type Response struct {
	Data []byte
	Code string // of an error, "" when there is none
	Text string // of an error
}
