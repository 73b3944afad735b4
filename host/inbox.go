package host

import "time"

// Source is where the messages of an inbox come from: for one function, a durable
// on a stream as it was created at some time, since another of the same name may
// follow it, in an epoch of its replays.
type Source struct {
	Function string
	Epoch    string
	Durable  string
	Stream   string
	Created  int64 // UnixNano
}

// SourceOf returns the source of a message, for a function.
func SourceOf(function string, m *Message) Source {
	return Source{Function: function, Epoch: m.Epoch, Durable: m.Consumer, Stream: m.Stream, Created: m.StreamCreated.UnixNano()}
}

// Position is how far an inbox is with a source.
type Position struct {
	Since  uint64    // the first that was done
	Floor  uint64    // everything from there up to here is done
	High   uint64    // the highest sequence that is done
	HighAt time.Time // when that message was stored in its stream
}
