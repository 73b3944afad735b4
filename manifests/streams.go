package manifests

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// StreamsFile is the name of the file that declares the streams of a folder.
const StreamsFile = "streams.yaml"

// Streams is the content of a streams.yaml.
type Streams struct {
	Streams    []Stream `json:"streams,omitempty"`
	DeadLetter Watching `json:"dead_letter,omitzero"`
}

// Watching says of which durables that are not Pelton's dead letters are kept.
type Watching struct {
	Watch []Watched `json:"watch,omitempty"`
}

// Watched names a durable.
type Watched struct {
	Stream  string `json:"stream" jsonschema:"required"`
	Durable string `json:"durable" jsonschema:"required"`
}

// Stream declares one JetStream stream, in JetStream's own words.
type Stream struct {
	Name              string   `json:"name" jsonschema:"required"`
	Description       string   `json:"description,omitempty"`
	Subjects          []string `json:"subjects" jsonschema:"required"`
	Retention         string   `json:"retention,omitempty"` // limits, interest, workqueue
	Storage           string   `json:"storage,omitempty"`   // file, memory
	Discard           string   `json:"discard,omitempty"`   // old, new
	MaxAge            Duration `json:"max_age,omitempty"`
	MaxBytes          Size     `json:"max_bytes,omitempty"`
	MaxMsgs           int64    `json:"max_msgs,omitempty"`
	MaxMsgsPerSubject int64    `json:"max_msgs_per_subject,omitempty"`
	MaxMsgSize        Size     `json:"max_msg_size,omitempty"`
	DuplicateWindow   Duration `json:"duplicate_window,omitempty"`
	Replicas          int      `json:"replicas,omitempty"`
}

// DecodeStreams reads a streams.yaml strictly. The error is a [Problems].
func DecodeStreams(file string, src []byte) (*Streams, error) {
	d, err := parseDocument(file, src)
	if err != nil {
		return nil, err
	}
	s := &Streams{}
	if err := d.decode(s); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for i := range s.Streams {
		at := fmt.Sprintf("streams[%d]", i)
		defaultStream(&s.Streams[i], at, d)
		validateStream(&s.Streams[i], at, d)
		if names[s.Streams[i].Name] {
			d.fail(at+".name", fmt.Sprintf("%q is declared twice", s.Streams[i].Name), "remove one of the two")
		}
		names[s.Streams[i].Name] = true
	}
	for i, w := range s.DeadLetter.Watch {
		at := fmt.Sprintf("dead_letter.watch[%d]", i)
		if !streamPattern.MatchString(w.Stream) {
			d.fail(at+".stream", fmt.Sprintf("%q cannot be a stream's name", w.Stream), "use letters, digits, _ and -, such as ORDERS")
		}
		if !streamPattern.MatchString(w.Durable) {
			d.fail(at+".durable", fmt.Sprintf("%q cannot be a durable's name", w.Durable), "use letters, digits, _ and -, as nats consumer ls shows it")
		}
	}
	if err := d.problems(); err != nil {
		return nil, err
	}
	return s, nil
}

// LoadStreams reads a streams.yaml; a file that does not exist declares none.
func LoadStreams(path string) (*Streams, error) {
	src, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &Streams{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read streams: %w", err)
	}
	return DecodeStreams(path, src)
}

func defaultStream(s *Stream, at string, d *document) {
	defaultTo(d, at+".retention", &s.Retention, "limits")
	defaultTo(d, at+".storage", &s.Storage, "file")
	defaultTo(d, at+".discard", &s.Discard, "old")
	defaultTo(d, at+".duplicate_window", &s.DuplicateWindow, 2*minute)
	if s.MaxAge > 0 && s.MaxAge < s.DuplicateWindow && !d.has(at+".duplicate_window") {
		s.DuplicateWindow = s.MaxAge
	}
	defaultTo(d, at+".replicas", &s.Replicas, 1)
	defaultTo(d, at+".max_msgs", &s.MaxMsgs, -1)
	defaultTo(d, at+".max_msgs_per_subject", &s.MaxMsgsPerSubject, -1)
}

func validateStream(s *Stream, at string, d *document) {
	if !streamPattern.MatchString(s.Name) {
		d.fail(at+".name", fmt.Sprintf("%q cannot be a stream's name", s.Name), "use letters, digits, _ and -, such as VIDEO_EVENTS")
	}
	if len(s.Subjects) == 0 {
		d.fail(at+".subjects", "is missing", "list what the stream takes, such as [video.>]")
	}
	for i, subject := range s.Subjects {
		if msg := CheckSubject(subject, false); msg != "" {
			d.fail(fmt.Sprintf("%s.subjects[%d]", at, i), fmt.Sprintf("%q %s", subject, msg), "write tokens joined by dots, such as video.>")
		}
	}
	oneOf(d, at+".retention", s.Retention, "limits", "interest", "workqueue")
	oneOf(d, at+".storage", s.Storage, "file", "memory")
	oneOf(d, at+".discard", s.Discard, "old", "new")
	if s.Replicas < 1 || s.Replicas > 5 || s.Replicas%2 == 0 {
		d.fail(at+".replicas", fmt.Sprintf("%d is not 1, 3 or 5", s.Replicas), "1 on one box, 3 in a cluster")
	}
	if s.MaxAge > 0 && s.DuplicateWindow > s.MaxAge {
		d.fail(at+".duplicate_window", "is longer than max_age", "the server refuses that; make it shorter")
	}
}
