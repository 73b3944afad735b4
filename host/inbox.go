package host

import "time"

// Inbox names whose messages a transaction takes note of: those of a function,
// in an epoch of its replays ("" for live traffic).
type Inbox struct {
	Function string
	Epoch    string
}

// Source is where the messages of an inbox come from: a durable on a stream as
// it was created at some time, since another of the same name may follow it.
type Source struct {
	Inbox
	Durable string
	Stream  string
	Created int64 // UnixNano
}

// SourceOf returns the source of a message.
func (in Inbox) SourceOf(m *Message) Source {
	return Source{Inbox: in, Durable: m.Consumer, Stream: m.Stream, Created: m.StreamCreated.UnixNano()}
}

// Position is how far an inbox is with a source.
type Position struct {
	Floor  uint64    // everything up to here is done
	High   uint64    // the highest sequence that is done
	HighAt time.Time // when that message was stored in its stream
}
