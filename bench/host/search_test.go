package host

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/pelton-run/pelton/bench"
	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/runtime/engine"
)

// query is the statement of the shipped search.
const query = `SELECT v.id, coalesce(v.external_id, v.id), v.title, v.channel, v.category, v.source, v.region, v.revision
FROM videos_fts JOIN videos v ON v.doc = videos_fts.rowid
WHERE videos_fts MATCH ? AND v.removed = 0 ORDER BY rank, v.doc DESC LIMIT ?`

// hit is what a native search answers, like the shipped one.
type hit struct {
	ID         string `json:"id"`
	ExternalID string `json:"external_id"`
	Title      string `json:"title"`
	Channel    string `json:"channel,omitempty"`
	Category   string `json:"category,omitempty"`
	Source     string `json:"source,omitempty"`
	Region     string `json:"region,omitempty"`
	Revision   int64  `json:"revision"`
}

// BenchmarkSearch compares the shipped search under 32 requests at a time with native
// Go that runs the same statement, prepared, on as many connections for reading, and
// encodes the same answer.
func BenchmarkSearch(b *testing.B) {
	const n, workers, videos = 2000, 32, 5000
	schema, err := os.ReadFile("../../manifests/migrations/index/001_videos.sql")
	must(b, err)
	db, plain := database(b, string(schema)), native(b, string(schema))
	tx, err := db.Begin(context.Background())
	must(b, err)
	for i := range videos {
		args := []any{fmt.Sprint(i), fmt.Sprintf("A video about thing number %d and other words", i), fmt.Sprintf("Channel %d", i%50), fmt.Sprintf("one two tag-%d", i%7)}
		const add = "INSERT INTO videos (id, title, channel, tags, category, source, region, revision) VALUES (?, ?, ?, ?, 'news', 'youtube', 'eu', 1)"
		_, err := tx.Exec(context.Background(), add, args)
		must(b, err)
		_, err = plain.Exec(add, args...)
		must(b, err)
	}
	must(b, tx.Commit(context.Background()))
	plain.SetMaxOpenConns(max(2, runtime.GOMAXPROCS(0)))
	statement, err := plain.Prepare(query)
	must(b, err)
	pool := newPool(b, guest(b, "functions/search"), "name: search\ntriggers: [{request: search.videos}]\ngrants: {sqlite: {search: {mode: read}}}\n", engine.Settings{Max: 2, Shared: true})
	grants := &host.Grants{Databases: map[string]host.Database{"search": db}}
	word := func(i int) string { return fmt.Sprintf("number %d", i%videos) }
	ours, theirs := bench.Interleave(bench.Rounds, func(int) time.Duration {
		return inParallel(n, workers, func(i int) { ask(b, pool, grants, fmt.Sprintf(`{"q": %q}`, word(i))) })
	}, func(int) time.Duration {
		return inParallel(n, workers, func(i int) { search(b, statement, fmt.Sprintf(`"number" "%d"`, i%videos)) })
	})
	f := report.Add("search, 32 requests at a time, vs. native Go with the same readers", "requests/s", n/ours.Seconds(), n/theirs.Seconds(), 0.7)
	b.ReportMetric(f.Ratio, "ratio")
}

func inParallel(n, workers int, do func(i int)) time.Duration {
	var group sync.WaitGroup
	begin := time.Now()
	for w := range workers {
		group.Go(func() {
			for i := w; i < n; i += workers {
				do(i)
			}
		})
	}
	group.Wait()
	return time.Since(begin)
}

// ask has the shipped search answer one request.
func ask(b *testing.B, p *engine.Pool, g *host.Grants, body string) {
	c := host.NewCall(context.Background(), "search", g, host.Limits{Tickets: 100, Rows: host.RowLimit{Rows: 1000, Bytes: 1 << 20}, Response: 1 << 20, Buffers: 1 << 20}, silent{},
		[]*host.Message{{Subject: "search.videos", Reply: "reply", Data: []byte(body), Timestamp: time.Now()}})
	defer c.Close()
	c.SetTimeout(time.Minute, errTimeout)
	must(b, p.Invoke(c))
	must(b, c.Finish())
	if r := c.Deliveries()[0].Response; r == nil || len(r.Data) < 100 {
		b.Errorf("%s: answered %+v", body, r)
	}
}

// search does the same natively.
func search(b *testing.B, statement *sql.Stmt, match string) {
	rows, err := statement.Query(match, 20)
	must(b, err)
	defer rows.Close()
	hits := []hit{}
	for rows.Next() {
		var h hit
		var external, category, source, region, channel, title sql.NullString
		must(b, rows.Scan(&h.ID, &external, &title, &channel, &category, &source, &region, &h.Revision))
		h.ExternalID, h.Title, h.Channel, h.Category, h.Source, h.Region = external.String, title.String, channel.String, category.String, source.String, region.String
		hits = append(hits, h)
	}
	must(b, rows.Err())
	body, err := json.Marshal(map[string]any{"hits": hits, "count": len(hits)})
	must(b, err)
	if len(body) < 100 {
		b.Errorf("answered %s", body)
	}
}
