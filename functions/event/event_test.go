package event

import (
	"strings"
	"testing"
	"time"

	"github.com/pelton-run/pelton/sdk"
)

func decode(body string) (*Event, error) {
	c := FromEnv()
	return c.Decode(sdk.NewMsg("video.ingested.src.ext", nil, []byte(body)))
}

// JSN-1: large whole numbers keep their digits, others are refused.
func TestNumbers(t *testing.T) {
	for in, want := range map[string]string{
		"9007199254740992": "9007199254740992", "9007199254740993": "9007199254740993", "12345678901234567890": "12345678901234567890",
		`"a-1"`: "a-1", `"007"`: "007", "0": "0", "-5": "-5", "007": "7", "-0": "0", "10": "10",
		"12345678901234567890123": "", "1e3": "", "1.5": "", "true": "", "null": "", "[]": "", `""`: "",
	} {
		e, err := decode(`{"video_id":` + in + `,"revision":1}`)
		switch {
		case want == "" && err == nil:
			t.Errorf("id %s is taken as %q", in, e.ID)
		case want != "" && (err != nil || e.ID != want):
			t.Errorf("id %s = %v, %v; want %s", in, e, err, want)
		}
	}
	for in, want := range map[string]int64{"9007199254740993": 9007199254740993, "0": 0, "-1": -1} {
		if e, err := decode(`{"video_id":1,"revision":` + in + `}`); err != nil || e.Revision != want {
			t.Errorf("revision %s = %v, %v; want %d", in, e, err, want)
		}
	}
	for _, bad := range []string{"1e3", "1.5", `"7"`, "null", "12345678901234567890123", "9223372036854775808"} {
		if e, err := decode(`{"video_id":1,"revision":` + bad + `}`); err == nil {
			t.Errorf("revision %s is taken as %d", bad, e.Revision)
		}
	}
}

// JSN-2 and CON-7: a byte order mark is skipped; what is not one JSON object in
// UTF-8 is permanent, with a readable reason.
func TestWrapping(t *testing.T) {
	if _, err := decode("\xEF\xBB\xBF" + `{"video_id":1,"revision":1}`); err != nil {
		t.Errorf("byte order mark: %v", err)
	}
	for _, bad := range []string{"", "   ", "null", "[]", "{} {}", "{", "\xFF\xFE{\x00}\x00", "not json", `"text"`, "7", `{"video_id":1,"revision":1}x`, "{\"video_id\":\"\xff\",\"revision\":1}", "{\"a\":1\x00}", "{}"} {
		e, err := decode(bad)
		if err == nil {
			t.Errorf("%q is taken as %+v", bad, e)
			continue
		}
		if d, _, reason := sdk.DispositionOf(err); d != sdk.DispositionTerm || !strings.HasPrefix(reason, "decode event: ") {
			t.Errorf("%q: disposition %d, reason %q; want term and a reason", bad, d, reason)
		}
	}
}

func TestSchema(t *testing.T) {
	for body, ok := range map[string]bool{`{"schema":1,"video_id":1,"revision":1}`: true, `{"video_id":1,"revision":1}`: true, `{"schema":99,"video_id":1,"revision":1}`: false, `{"schema":"1","video_id":1,"revision":1}`: false} {
		if _, err := decode(body); (err == nil) != ok {
			t.Errorf("%s: %v, want ok %v", body, err, ok)
		}
	}
}

// The events of TrendVidStream: a text as id, no schema, no revision.
func TestTrendVidStream(t *testing.T) {
	c := FromEnv()
	c.Revision, c.Picture = "sequence", "thumbnail"
	msg := sdk.NewMsg("video.discovered.de", nil, []byte(`{"video_id":"yt-abc","region":"de","title":"T","channel_id":"c1","published_at":"2026-11-30T10:00:00Z","thumbnail":"https://i.example/x.jpg"}`)).
		WithMetadata("events", sdk.Metadata{Sequence: sdk.SequencePair{Stream: 42}})
	e, err := c.Decode(msg)
	if err != nil {
		t.Fatal(err)
	}
	if e.Kind != Added || e.ID != "yt-abc" || e.External != "yt-abc" || e.Region != "de" || e.Revision != 42 || e.Channel != "c1" || e.Picture != "https://i.example/x.jpg" || e.Modified != "2026-11-30T10:00:00Z" {
		t.Errorf("got %+v", e)
	}
	if e.Has(Tags) || !e.Has(Title) {
		t.Error("Has is wrong")
	}
}

// One member of the event may serve for two, and of two with one name the first
// counts.
func TestNames(t *testing.T) {
	c := FromEnv()
	c.External, c.Picture = "video_id", "title"
	e, err := c.Decode(sdk.NewMsg("video.ingested.x", nil, []byte(`{"video_id":"a","video_id":"b","revision":1,"revision":2,"title":"T","channel_id":"c","channel":"d","tags":["x","y"],"urls":["u","v"],"category":null}`)))
	if err != nil {
		t.Fatal(err)
	}
	if e.ID != "a" || e.External != "a" || e.Revision != 1 || e.Picture != "T" || e.Title != "T" || e.Channel != "d" || e.Tags != "x y" || strings.Join(e.URLs, ",") != "u,v" || e.Has(Category) {
		t.Errorf("got %+v", e)
	}
	if _, err := c.Decode(sdk.NewMsg("video.ingested.x", nil, []byte(`{"video_id":"a","revision":1,"title":7}`))); err == nil || !strings.Contains(err.Error(), "title is a number") {
		t.Errorf("a number as a title: %v", err)
	}
}

// What is not among the fields is not looked at.
func TestFields(t *testing.T) {
	c := FromEnv()
	c.Fields = Title | Tags
	e, err := c.Decode(sdk.NewMsg("video.ingested.x", nil, []byte(`{"video_id":"a","revision":1,"title":"T","source":7,"urls":7,"tags":["x"]}`)))
	if err != nil || e.Title != "T" || e.Tags != "x" || e.Has(Source) || e.External != "a" {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestKinds(t *testing.T) {
	for subject, want := range map[string]Kind{"video.ingested.a.b": Added, "video.discovered.de": Added, "video.updated.a.b": Updated, "video.removed.de": Removed, "video.enriched.thumbnail.x": Other, "video": Other} {
		if got := KindOf(subject); got != want {
			t.Errorf("KindOf(%s) = %d, want %d", subject, got, want)
		}
	}
}

func TestTime(t *testing.T) {
	for in, want := range map[string]string{"2024-01-08": "2024-01-08T00:00:00Z", "2024-01-08T10:00:00+02:00": "2024-01-08T08:00:00Z", "2024-01-08 10:00:00+0200": "2024-01-08T08:00:00Z", "2024-01-08T00:00:00": "", "": "", "yesterday": ""} {
		got, _, ok := Time(in)
		if ok != (want != "") || ok && got.UTC().Format(time.RFC3339) != want {
			t.Errorf("Time(%q) = %s, %v; want %s", in, got, ok, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"schema":1,"video_id":1,"revision":1,"tags":["a"],"urls":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := decode(string(body))
		if err != nil {
			if d, _, reason := sdk.DispositionOf(err); d != sdk.DispositionTerm || reason == "" {
				t.Errorf("disposition %d, reason %q", d, reason)
			}
			return
		}
		if e.ID == "" || e.External == "" {
			t.Errorf("an event without an id: %+v", e)
		}
	})
}

// Of a name that comes twice the first one counts, and one name may stand for two
// members.
func TestMembers(t *testing.T) {
	e, err := decode(`{"video_id":1,"title":"first","title":"second","revision":1,"a name that nobody wants":true}`)
	if err != nil || e.Title != "first" {
		t.Errorf("title twice: %+v, %v; want the first", e, err)
	}
	t.Setenv("external_id", "video_id")
	e, err = decode(`{"video_id":"abc","revision":1}`)
	if err != nil || e.ID != "abc" || e.External != "abc" || !e.Has(External) {
		t.Errorf("one name for two: %+v, %v; want both to be abc", e, err)
	}
}
