// Command sitemap keeps the sitemap of each region. Events mark a region dirty;
// a schedule writes the files of the dirty ones and tells IndexNow what changed.
package main

import (
	"context"
	"net/url"
	"os"
	"strings"

	"github.com/pelton-run/pelton/functions/event"
	"github.com/pelton-run/pelton/sdk"
)

func init() { sdk.HandleBatch(handle) }

func main() {} // a reactor is called, not run

var (
	config = event.FromEnv()
	db     = sdk.SQLite("sitemap")
	site   = sdk.Blobs("site")
	base   = os.Getenv("base_url")
)

// The statements. changed marks what IndexNow has not been told of.
const (
	add = `INSERT INTO pages (id, region, path, lastmod, revision, removed, changed) VALUES (?, ?, ?, ?, ?, 0, 1)
ON CONFLICT (id) DO UPDATE SET region = excluded.region, path = excluded.path, lastmod = excluded.lastmod,
 revision = excluded.revision, removed = 0, changed = 1 WHERE excluded.revision > pages.revision`
	remove = `INSERT INTO pages (id, region, path, revision, removed, changed) VALUES (?, ?, ?, ?, 1, 1)
ON CONFLICT (id) DO UPDATE SET revision = excluded.revision, removed = 1, changed = 1 WHERE excluded.revision > pages.revision`
	markDirty = `INSERT INTO dirty (region) VALUES (?) ON CONFLICT DO NOTHING`
)

func handle(ctx context.Context, batch sdk.Batch) error {
	return batch.Each(ctx, func(ctx context.Context, msg *sdk.Msg) error {
		if msg.Trigger() == "flush" {
			return flush(ctx)
		}
		return mark(ctx, msg)
	})
}

// mark notes what an event changes in its region's sitemap.
func mark(ctx context.Context, msg *sdk.Msg) error {
	kind := event.KindOf(msg.Subject())
	if kind == event.Other {
		return nil
	}
	e, err := config.Decode(msg)
	if err != nil {
		return err
	}
	region := regionName(e.Region)
	var changed sdk.Result
	if kind == event.Removed {
		changed, err = db.Exec(ctx, remove, e.ID, region, pagePath(e), e.Revision)
	} else {
		changed, err = db.Exec(ctx, add, e.ID, region, pagePath(e), e.Modified, e.Revision)
	}
	if err != nil || changed.RowsAffected == 0 {
		return err
	}
	_, err = db.Exec(ctx, markDirty, region)
	return err
}

// regionName makes a region fit for a file's name.
func regionName(s string) string {
	if s == "" {
		return "all"
	}
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(s))
}

// pagePath is the path of a video's page: the event's own, as it is given, or
// the watch page.
func pagePath(e *event.Event) string {
	if e.Path != "" {
		return e.Path
	}
	return "/watch/" + url.PathEscape(e.External)
}

// flush writes the sitemaps of the dirty regions. The marks go in the same
// transaction as the handler's success, so a flush that fails is done again.
func flush(ctx context.Context) error {
	dirty, err := db.Query(ctx, `SELECT region FROM dirty ORDER BY region`)
	if err != nil {
		return err
	}
	for dirty.Next() {
		var region string
		if err := dirty.Scan(&region); err != nil {
			return err
		}
		if err := flushRegion(ctx, region); err != nil {
			return err
		}
	}
	return nil
}

func flushRegion(ctx context.Context, region string) error {
	if err := write(ctx, region); err != nil {
		return err
	}
	if err := announce(ctx, region); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, `UPDATE pages SET changed = 0 WHERE region = ? AND changed = 1`, region); err != nil {
		return err
	}
	_, err := db.Exec(ctx, `DELETE FROM dirty WHERE region = ?`, region)
	return err
}
