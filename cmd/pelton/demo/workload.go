package demo

import (
	"fmt"
	"time"
)

// MinEvents is the fewest events that hold every kind.
const MinEvents = 40

// publication is one message that the demo publishes.
type publication struct {
	subject string
	id      string // for the stream's duplicate window
	body    string
}

// fault is what is wrong with a video's picture.
type fault int

const (
	noFault fault = iota
	notFound
	gone
	flaky // 503 twice, then the picture
	htmlPage
	broken
)

// permanentFaults maps the faults that no retry mends to what their dead
// letters say.
var permanentFaults = map[fault]string{
	notFound: "status 404", gone: "status 410", htmlPage: "HTML page", broken: "broken",
}

// video is one video and what it must be in the end.
type video struct {
	number   int
	external string
	source   string
	region   string
	category string
	word     string // in the title, of this video and revision alone
	stale    string // a word that only a stale event had
	revision int
	removed  bool
	picture  fault
}

func (v *video) id() int64 { return 9007199254740993 + int64(v.number) } // beyond what a float holds

// letter is a dead letter that must be there.
type letter struct{ function, subject, reason string }

// workload is everything that is published and what it must lead to.
type workload struct {
	publications []publication
	videos       []*video
	letters      []letter
}

var (
	sources    = []string{"youtube", "vimeo", "peertube"}
	regions    = []string{"us", "eu", "asia"}
	categories = []string{"news", "music", "sport", "science"}
)

// the functions that read every event, and so meet every bad one.
var readers = []string{"index", "counters", "purge", "sitemap"}

// newWorkload makes n publications: videos, and for some of them an update, a
// stale event, a removal and a late event after it, and some that are published
// twice or make no sense.
func newWorkload(n int, origin string) *workload {
	w := &workload{}
	for number := 0; len(w.publications) < n; number++ {
		w.addVideo(number, n, origin)
		if number%20 == 7 {
			w.addBad(number, n)
		}
	}
	return w
}

func (w *workload) addVideo(number, n int, origin string) {
	v := &video{
		number: number, external: fmt.Sprintf("v%05d", number), source: sources[number%3], region: regions[number/3%3],
		category: categories[number%4], revision: 1, picture: faultOf(number),
	}
	v.word = fmt.Sprintf("word%dr1", number)
	w.videos = append(w.videos, v)
	w.publish(n, v, "ingested", v.body(1, v.word, v.category, origin), "1")
	if reason, ok := permanentFaults[v.picture]; ok {
		w.letters = append(w.letters, letter{"thumbnail", v.subject("ingested"), reason})
	}
	switch number % 10 {
	case 2: // a crashed publisher's rerun: the stream drops it
		w.publish(n, v, "ingested", v.body(1, v.word, v.category, origin), "1")
	case 3, 4: // an update moves it to another category; then a stale one comes late
		if w.publish(n, v, "updated", v.body(2, fmt.Sprintf("word%dr2", number), categories[(number+1)%4], origin), "2") {
			v.revision, v.word, v.category = 2, fmt.Sprintf("word%dr2", number), categories[(number+1)%4]
			stale := fmt.Sprintf("stale%d", number)
			if w.publish(n, v, "updated", v.body(1, stale, "stale", origin), "1-late") {
				v.stale = stale
			}
		}
	case 6: // removed; then late updates must not revive it, an older and a newer one
		if w.publish(n, v, "removed", v.body(3, v.word, v.category, origin), "3") {
			v.revision, v.removed = 3, true
			w.publish(n, v, "updated", v.body(2, fmt.Sprintf("late%d", number), v.category, origin), "2-late")
			w.publish(n, v, "updated", v.body(4, fmt.Sprintf("late%d", number), v.category, origin), "4-late")
		}
	}
}

// faultOf spreads the faults over the videos.
func faultOf(number int) fault {
	switch number % 25 {
	case 5:
		return notFound
	case 9:
		return flaky
	case 13:
		return htmlPage
	case 17:
		return gone
	case 21:
		return broken
	}
	return noFault
}

// publish adds a publication if there is room, and reports whether there was.
func (w *workload) publish(n int, v *video, verb, body, revision string) bool {
	if len(w.publications) >= n {
		return false
	}
	w.publications = append(w.publications, publication{v.subject(verb), v.source + "|" + v.external + "|" + revision, body})
	return true
}

func (v *video) subject(verb string) string {
	return "video." + verb + "." + v.source + "." + v.external
}

func (v *video) body(revision int, word, category, origin string) string {
	at := time.Date(2026, 11, 30, 12, 0, v.number%60, 0, time.UTC).Format(time.RFC3339)
	return fmt.Sprintf(`{"schema":1,"video_id":%d,"external_id":%q,"source":%q,"region":%q,"revision":%d,"title":"A video about %s & more","duration":%d,"thumb_url":%q,"occurred_at":%q,"category":%q,"tags":["demo","tag-%d"]}`,
		v.id(), v.external, v.source, v.region, revision, word, 30+v.number, origin+picturePath(v), at, category, v.number%7)
}

// addBad adds an event that no function can read.
func (w *workload) addBad(number, n int) {
	v := &video{external: fmt.Sprintf("bad%05d", number), source: sources[number%3]}
	body, reason := `{"schema":1,"video_id":12,`, "not JSON"
	if number%40 == 27 {
		body, reason = `{"schema":99,"video_id":12,"revision":1}`, "unknown schema 99"
	}
	if !w.publish(n, v, "ingested", body, "1") {
		return
	}
	for _, f := range append([]string{"thumbnail"}, readers...) {
		w.letters = append(w.letters, letter{f, v.subject("ingested"), reason})
	}
}
