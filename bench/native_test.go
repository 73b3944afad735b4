package bench

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"image"
	"image/color"
	"image/jpeg"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	_ "modernc.org/sqlite"

	"github.com/pelton-run/pelton/manifests"
)

// replaceStream has the shipped manifest read the bench's stream.
func replaceStream(manifest string) string {
	return strings.Replace(strings.Replace(manifest, "VIDEO_EVENTS", "S", 1), "wait: 100ms", "wait: 20ms", 1)
}

// jpegPicture makes a picture with some content.
func jpegPicture(b *testing.B, w, h int) []byte {
	b.Helper()
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			img.SetRGBA(x, y, color.RGBA{uint8(x * 255 / w), uint8(y * 255 / h), uint8((x ^ y) & 0xff), 255})
		}
	}
	var out bytes.Buffer
	must(b, jpeg.Encode(&out, img, nil))
	return out.Bytes()
}

// video is an event, as a native consumer would decode it.
type video struct {
	Schema     int      `json:"schema"`
	VideoID    int64    `json:"video_id"`
	ExternalID string   `json:"external_id"`
	Source     string   `json:"source"`
	Region     string   `json:"region"`
	Revision   int64    `json:"revision"`
	Title      string   `json:"title"`
	Channel    string   `json:"channel"`
	Category   string   `json:"category"`
	Tags       []string `json:"tags"`
	OccurredAt string   `json:"occurred_at"`
}

// upsert is the statement of the shipped index.
const upsert = `INSERT INTO videos (id, external_id, source, region, category, title, channel, tags, occurred_at, revision, removed)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)
ON CONFLICT (id) DO UPDATE SET external_id = coalesce(excluded.external_id, external_id), source = coalesce(excluded.source, source),
 region = coalesce(excluded.region, region), category = coalesce(excluded.category, category),
 title = coalesce(excluded.title, title), channel = coalesce(excluded.channel, channel),
 tags = coalesce(excluded.tags, tags), occurred_at = coalesce(excluded.occurred_at, occurred_at),
 revision = excluded.revision, removed = 0
WHERE excluded.revision > videos.revision`

// nativeIndex decodes with encoding/json and commits every so many messages, then
// acks them.
func (r *rig) nativeIndex(b *testing.B, durable string, n, each int, migrations []manifests.Migration) time.Duration {
	b.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "native.db")+"?_journal_mode=WAL&_synchronous=FULL&_txlock=immediate")
	must(b, err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, m := range migrations {
		_, err := db.Exec(m.SQL)
		must(b, err)
	}
	statement, err := db.Prepare(upsert)
	must(b, err)
	var held []jetstream.Msg
	c, err := r.js.CreateConsumer(b.Context(), "S", jetstream.ConsumerConfig{Durable: durable, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 4000})
	must(b, err)
	it, err := c.Messages(jetstream.PullMaxMessages(1000))
	must(b, err)
	defer it.Stop()
	start := time.Now()
	for done := 0; done < n; {
		m, err := it.Next()
		must(b, err)
		if held = append(held, m); len(held) < each && done+len(held) < n {
			continue
		}
		tx, err := db.Begin()
		must(b, err)
		bound := tx.Stmt(statement)
		for _, m := range held {
			var v video
			must(b, json.Unmarshal(m.Data(), &v))
			_, err := bound.Exec(strconv.FormatInt(v.VideoID, 10), v.ExternalID, v.Source, v.Region, v.Category, v.Title, v.Channel, strings.Join(v.Tags, " "), v.OccurredAt, v.Revision)
			must(b, err)
		}
		must(b, tx.Commit())
		for _, m := range held {
			must(b, m.Ack())
		}
		done += len(held)
		held = held[:0]
	}
	return time.Since(start)
}
