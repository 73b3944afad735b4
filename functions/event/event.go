// Package event reads the video events of the shipped functions: those of
// DailyWatch and of TrendVidStream, and of any system whose fields can be named
// in the manifest's config.
package event

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/valyala/fastjson"

	"github.com/pelton-run/pelton/sdk"
)

// Kind is what happened to a video.
type Kind int

// The kinds, by the second token of the subject.
const (
	Other   Kind = iota // nothing that changes a video: video.enriched.…
	Added               // ingested, discovered
	Updated             // updated
	Removed             // removed
)

// KindOf reads the kind off a subject such as video.ingested.<source>.<id>.
func KindOf(subject string) Kind {
	_, rest, _ := strings.Cut(subject, ".")
	verb, _, _ := strings.Cut(rest, ".")
	switch verb {
	case "ingested", "discovered":
		return Added
	case "updated":
		return Updated
	case "removed":
		return Removed
	}
	return Other
}

// Config names the fields of the events.
type Config struct {
	ID       string   // the video's id, a whole number or a text
	External string   // the name that it has in URLs
	Picture  string   // the URL of its picture
	Region   string   // where it belongs
	Revision string   // grows with every change; "sequence" takes the stream's
	Schemas  []string // the schema numbers that are known
	Fields   Field    // what is read of an event beside its id and revision, 0 for all

	members *[members]string // their names; made with the first event
	wanted  [][]wanted       // the same by the length of the name
}

// FromEnv reads the configuration from the manifest's config, with the names of
// DailyWatch's events as defaults.
func FromEnv() Config {
	get := func(name, value string) string {
		if v := os.Getenv(name); v != "" {
			return v
		}
		return value
	}
	return Config{
		ID: get("id", "video_id"), External: get("external_id", "external_id"), Picture: get("picture", "thumb_url"),
		Region: get("region", "region"), Revision: get("revision", "revision"),
		Schemas: strings.FieldsFunc(get("schema", "1"), func(r rune) bool { return r == ',' || r == ' ' }),
	}
}

// Event is one event. Texts that the event does not have are "".
type Event struct {
	Kind     Kind
	ID       string // with all its digits
	External string // the id, if the event has no other name
	Source   string
	Region   string
	Revision int64
	Title    string
	Channel  string
	Tags     string // joined by spaces
	Category string
	Picture  string
	Path     string   // of the video's page, if the event gives one
	URLs     []string // that an event asks to purge
	Modified string   // as the event has it
	has      Field
}

// Field is one or more of an event's texts and lists.
type Field uint16

// The texts and lists.
const (
	Source Field = 1 << iota
	Title
	Category
	Path
	External
	Picture
	Region
	Channel
	Tags
	Modified
	URLs
)

// Has reports whether the event has a text, even an empty one: an update
// without a title does not change the title.
func (e *Event) Has(f Field) bool { return e.has&f != 0 }

// Text returns a text of the event for SQL: NULL when the event does not have it.
func (e *Event) Text(f Field, text *string) *string {
	if e.Has(f) {
		return text
	}
	return nil
}

// parsers keeps the parser's memory between events; a guest has one thread.
var parser fastjson.Parser

// Decode reads an event. Every error is permanent: the same bytes never read
// better.
func (c *Config) Decode(msg *sdk.Msg) (*Event, error) {
	v, err := parse(msg.Data())
	if err != nil {
		return nil, sdk.Term(err)
	}
	e, err := c.read(msg, v)
	if err != nil {
		return nil, sdk.Term(err)
	}
	return e, nil
}

// parse reads one JSON object. A byte order mark in front is skipped.
func parse(data []byte) (*fastjson.Value, error) {
	data = bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF"))
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return nil, errors.New("decode event: the body is empty")
	case bytes.HasPrefix(data, []byte{0xFF, 0xFE}), bytes.HasPrefix(data, []byte{0xFE, 0xFF}):
		return nil, errors.New("decode event: the body is UTF-16; send UTF-8")
	case bytes.IndexByte(data, 0) >= 0:
		return nil, errors.New("decode event: the body holds a NUL byte")
	case !utf8.Valid(data):
		return nil, errors.New("decode event: the body is not UTF-8")
	}
	v, err := parser.ParseBytes(data)
	if err != nil {
		return nil, errors.New("decode event: not JSON: " + err.Error())
	}
	if v.Type() != fastjson.TypeObject {
		return nil, errors.New("decode event: a JSON " + v.Type().String() + " where an object is expected")
	}
	return v, nil
}

func (c *Config) read(msg *sdk.Msg, v *fastjson.Value) (*Event, error) {
	var r reader
	r.text.Grow(len(msg.Data()))
	r.collect(c, v)
	if err := c.checkSchema(&r); err != nil {
		return nil, err
	}
	e := &Event{Kind: KindOf(msg.Subject())}
	var err error
	if e.ID, err = r.identifier(c.ID); err != nil {
		return nil, err
	}
	if e.Revision, err = c.revision(msg, &r); err != nil {
		return nil, err
	}
	for _, t := range [...]struct {
		at    member
		field Field
		into  *string
	}{{source, Source, &e.Source}, {title, Title, &e.Title}, {category, Category, &e.Category}, {path, Path, &e.Path},
		{external, External, &e.External}, {picture, Picture, &e.Picture}, {region, Region, &e.Region},
		{channelID, Channel, &e.Channel}, {channel, Channel, &e.Channel},
		{publishedAt, Modified, &e.Modified}, {occurredAt, Modified, &e.Modified}} {
		if !c.reads(t.field) {
			continue
		}
		has, err := r.string(t.at, t.into)
		if err != nil {
			return nil, err
		}
		if has {
			e.has |= t.field
		}
	}
	if err := c.lists(&r, e); err != nil {
		return nil, err
	}
	if e.External == "" {
		e.External = e.ID
	}
	return e, nil
}

// reads reports whether a field is among those that are read.
func (c *Config) reads(f Field) bool { return c.Fields == 0 || c.Fields&f != 0 }

func (c *Config) lists(r *reader, e *Event) (err error) {
	if c.reads(Tags) {
		if e.Tags, err = r.joined(tags); err != nil {
			return err
		}
		if r.values[tags] != nil {
			e.has |= Tags
		}
	}
	if c.reads(URLs) {
		e.URLs, err = r.list(urls)
	}
	return err
}

func (c *Config) checkSchema(r *reader) error {
	s := r.values[schema]
	if s == nil {
		return nil
	}
	got := r.raw(s)
	for _, known := range c.Schemas {
		if got == known {
			return nil
		}
	}
	return errors.New("unknown schema " + got + ": this function knows " + strings.Join(c.Schemas, ", "))
}

func (c *Config) revision(msg *sdk.Msg, r *reader) (int64, error) {
	if c.Revision == "sequence" {
		return int64(msg.Metadata().Sequence.Stream), nil
	}
	f := r.values[revision]
	if f == nil || f.Type() != fastjson.TypeNumber {
		return 0, errors.New("decode event: " + c.Revision + " is not a number")
	}
	raw := r.raw(f)
	n, err := strconv.ParseInt(raw, 10, 64)
	if err != nil {
		return 0, errors.New("decode event: " + c.Revision + " " + shortened(raw) + " is not a whole number of 64 bits")
	}
	return n, nil
}

// Time reads a time in one of the forms that events have; ok is false for any
// other text. dateOnly says that it is a day without a time.
func Time(s string) (t time.Time, dateOnly, ok bool) {
	if t, err := time.Parse("2006-01-02", s); err == nil {
		return t, true, true
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05Z0700", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05Z0700"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, false, true
		}
	}
	return time.Time{}, false, false
}
