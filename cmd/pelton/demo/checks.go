package demo

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/image/webp"
	_ "modernc.org/sqlite" // reads the counters' file as another program would
)

const site = "https://www.example.com" // base_url of the shipped manifests

// check looks at everything that the functions left behind.
func (d *demo) check(ctx context.Context) (*Report, error) {
	letters, err := d.deadLetters(ctx)
	if err != nil {
		return nil, err
	}
	r := d.report(letters)
	r.add("every durable is done", nil, "nothing pending or outstanding")
	d.checkThumbnails(r)
	d.checkSearch(r)
	d.checkCounters(ctx, r)
	d.checkPurges(r)
	d.checkSitemaps(r)
	d.checkLetters(r, letters)
	r.Functions = d.figures() // those of the search function are made by the checks
	return r, nil
}

func (d *demo) checkThumbnails(r *Report) {
	var wrong []string
	checked := 0
	for _, v := range d.load.videos {
		if _, dead := permanentFaults[v.picture]; dead {
			continue
		}
		for _, width := range []int{160, 320, 640} {
			checked++
			if err := d.checkThumbnail(v, width); err != nil {
				wrong = append(wrong, err.Error())
			}
		}
	}
	r.add("thumbnails", wrong, fmt.Sprintf("%d WebP files have the right size", checked))
}

func (d *demo) checkThumbnail(v *video, width int) error {
	name := fmt.Sprintf("%s_%d.webp", v.external, width)
	b, err := os.ReadFile(filepath.Join(d.data, "blobs", "thumbs", name))
	if err != nil {
		return fmt.Errorf("%s does not exist", name)
	}
	config, err := webp.DecodeConfig(bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("%s is not WebP", name)
	}
	source := pictures[v.number%len(pictures)]
	wantW := min(width, source.width)
	wantH := int(float64(source.height)*float64(wantW)/float64(source.width) + 0.5)
	if config.Width != wantW || config.Height != wantH {
		return fmt.Errorf("%s is %d×%d, not %d×%d", name, config.Width, config.Height, wantW, wantH)
	}
	return nil
}

// checkSearch asks the search function for every video.
func (d *demo) checkSearch(r *Report) {
	var wrong []string
	for _, v := range d.load.videos {
		hits, err := d.search(v.word)
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Sprintf("search for %s: %v", v.word, err))
		case v.removed && len(hits) > 0:
			wrong = append(wrong, v.external+" was removed and is found")
		case !v.removed && (len(hits) != 1 || hits[0] != fmt.Sprint(v.id())):
			wrong = append(wrong, fmt.Sprintf("%s with id %d is not found by %s: %v", v.external, v.id(), v.word, hits))
		}
		for _, gone := range []string{v.stale, fmt.Sprintf("late%d", v.number)} {
			if gone == "" {
				continue
			}
			if hits, err := d.search(gone); err != nil || len(hits) > 0 {
				wrong = append(wrong, fmt.Sprintf("a stale title of %s is found (%v)", v.external, err))
			}
		}
	}
	r.add("index and search", wrong, fmt.Sprintf("%d videos are found or not as they must be, ids with all digits", len(d.load.videos)))
}

// search returns the ids that the search function finds.
func (d *demo) search(q string) ([]string, error) {
	body, err := json.Marshal(map[string]any{"q": q, "limit": 5})
	if err != nil {
		return nil, err
	}
	msg, err := d.host.Conn().Request("search.videos", body, 10*time.Second)
	if err != nil {
		return nil, err
	}
	if code := msg.Header.Get("Nats-Service-Error"); code != "" {
		return nil, fmt.Errorf("%s", code)
	}
	var answer struct{ Hits []struct{ ID string } }
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return nil, err
	}
	ids := []string{}
	for _, h := range answer.Hits {
		ids = append(ids, h.ID)
	}
	return ids, nil
}

func (d *demo) open(name string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+url.PathEscape(filepath.Join(d.data, "sqlite", name+".db"))+"?mode=ro&_busy_timeout=5000")
}

func (d *demo) count(ctx context.Context, database, query string) (n int, err error) {
	db, err := d.open(database)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

func (d *demo) checkCounters(ctx context.Context, r *Report) {
	want := map[string]int{}
	for _, v := range d.load.videos {
		if !v.removed {
			want["source/"+v.source]++
			want["category/"+v.category]++
		}
	}
	got, err := d.totals(ctx)
	if err != nil {
		r.add("counters", []string{err.Error()}, "")
		return
	}
	var wrong []string
	for name, n := range got {
		if want[name] != n {
			wrong = append(wrong, fmt.Sprintf("%s is %d, not %d", name, n, want[name]))
		}
	}
	for name, n := range want {
		if _, ok := got[name]; !ok {
			wrong = append(wrong, fmt.Sprintf("%s is missing, not %d", name, n))
		}
	}
	r.add("counters", wrong, fmt.Sprintf("%d totals equal the truth", len(want)))
}

func (d *demo) totals(ctx context.Context) (map[string]int, error) {
	db, err := d.open("counters")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, "SELECT kind || '/' || name, n FROM totals WHERE n <> 0")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	got := map[string]int{}
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			return nil, err
		}
		got[name] = n
	}
	return got, rows.Err()
}

func (d *demo) checkPurges(r *Report) {
	c := d.world.cdn
	c.mu.Lock()
	defer c.mu.Unlock()
	var wrong []string
	for _, v := range d.load.videos {
		for _, u := range []string{site + "/watch/" + v.external, site + "/category/" + v.category} {
			if c.purged[u] == 0 {
				wrong = append(wrong, u+" was not purged")
			}
		}
	}
	if c.tooLarge > 0 || c.strangers > 0 {
		wrong = append(wrong, fmt.Sprintf("%d calls above the limit of %d URLs, %d without the token", c.tooLarge, cdnLimit, c.strangers))
	}
	if c.busy == 0 {
		wrong = append(wrong, "the CDN never sent a call away, so waiting for it was not shown")
	}
	r.add("CDN purges", wrong, fmt.Sprintf("%d URLs confirmed in %d calls, %d of them sent away with Retry-After", len(c.purged), c.calls, c.busy))
}

func (d *demo) checkSitemaps(r *Report) {
	want := map[string][]string{}
	for _, v := range d.load.videos {
		if !v.removed {
			want[v.region] = append(want[v.region], site+"/watch/"+v.external)
		}
	}
	var wrong []string
	total := 0
	for region, urls := range want {
		sort.Strings(urls)
		got, err := readSitemap(filepath.Join(d.data, "blobs", "site", "sitemap_"+region+".xml"))
		if err != nil {
			wrong = append(wrong, err.Error())
			continue
		}
		if total += len(got); strings.Join(got, "\n") != strings.Join(urls, "\n") {
			wrong = append(wrong, fmt.Sprintf("sitemap of %s has %d URLs that are not the %d that it must have", region, len(got), len(urls)))
		}
		wrong = append(wrong, d.notPinged(urls)...)
	}
	r.add("sitemaps and IndexNow", wrong, fmt.Sprintf("%d sitemaps are well-formed with %d URLs, all told to IndexNow", len(want), total))
}

func (d *demo) notPinged(urls []string) (wrong []string) {
	d.world.cdn.mu.Lock()
	defer d.world.cdn.mu.Unlock()
	for _, u := range urls {
		if d.world.cdn.pinged[u] == 0 {
			wrong = append(wrong, "IndexNow was not told of "+u)
		}
	}
	return wrong
}

func readSitemap(path string) ([]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var set struct {
		XMLName xml.Name `xml:"http://www.sitemaps.org/schemas/sitemap/0.9 urlset"`
		URLs    []struct {
			Loc string `xml:"loc"`
		} `xml:"url"`
	}
	if err := xml.Unmarshal(b, &set); err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	var urls []string
	for _, u := range set.URLs {
		urls = append(urls, u.Loc)
	}
	sort.Strings(urls)
	return urls, nil
}

// deadLetters reads the whole stream of dead letters.
func (d *demo) deadLetters(ctx context.Context) ([]DeadLetter, error) {
	stream, err := d.host.JetStream().Stream(ctx, "DLQ")
	if err != nil {
		return nil, fmt.Errorf("open the stream of dead letters: %w", err)
	}
	count := stream.CachedInfo().State.Msgs
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", err)
	}
	letters := []DeadLetter{}
	for uint64(len(letters)) < count {
		msg, err := consumer.Next(jetstream.FetchMaxWait(5 * time.Second))
		if err != nil {
			return nil, fmt.Errorf("read dead letters: %w", err)
		}
		h := msg.Headers()
		l := DeadLetter{Subject: msg.Subject(), Function: h.Get("Pelton-Function"), Reason: h.Get("Pelton-Error"), body: string(msg.Data())}
		fmt.Sscan(h.Get("Pelton-Deliveries"), &l.Deliveries) // 0 says that it is missing
		letters = append(letters, l)
	}
	return letters, nil
}

func (d *demo) checkLetters(r *Report, got []DeadLetter) {
	open := map[string]DeadLetter{}
	var wrong []string
	for _, l := range got {
		key := l.Function + " " + l.Subject
		if _, twice := open[key]; twice {
			wrong = append(wrong, "two dead letters of "+key)
		}
		open[key] = l
	}
	for _, want := range d.load.letters {
		key := want.function + " dlq." + want.subject
		l, ok := open[key]
		switch {
		case !ok:
			wrong = append(wrong, "no dead letter of "+key)
		case !strings.Contains(l.Reason, want.reason) || l.Deliveries < 1:
			wrong = append(wrong, fmt.Sprintf("dead letter of %s says %q after %d deliveries", key, l.Reason, l.Deliveries))
		case want.function == "thumbnail" && l.Deliveries != 1:
			wrong = append(wrong, fmt.Sprintf("dead letter of %s came after %d deliveries, and no retry could have mended it", key, l.Deliveries))
		}
		delete(open, key)
	}
	for key, l := range open {
		wrong = append(wrong, fmt.Sprintf("dead letter of %s is one too many: %s", key, l.Reason))
	}
	r.add("dead letters", wrong, fmt.Sprintf("%d, each with its reason", len(d.load.letters)))
}
