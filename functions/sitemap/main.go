// Command sitemap keeps the sitemap of each region. Events mark a region dirty;
// a schedule writes the files of the dirty ones and tells IndexNow what changed.
package main

import (
	"context"
	"fmt"
	"log/slog"
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

// The statements. changed marks what IndexNow has not been told of. An update
// keeps what it does not say, and does not revive what was removed; a removal
// that names no region removes the page in all of them.
const (
	columns = `INSERT INTO pages (region, id, path, lastmod, revision, removed, changed) VALUES (?, ?, ?, ?, ?, 0, 1)
ON CONFLICT (region, id) DO UPDATE SET path = iif(?, excluded.path, path), lastmod = coalesce(excluded.lastmod, lastmod),
 revision = excluded.revision, removed = 0, changed = 1 WHERE excluded.revision > pages.revision`
	add    = columns
	update = columns + ` AND pages.removed = 0`
	remove = `INSERT INTO pages (region, id, path, revision, removed, changed) VALUES (?, ?, ?, ?, 1, 1)
ON CONFLICT (region, id) DO UPDATE SET revision = excluded.revision, removed = 1, changed = 1 WHERE excluded.revision > pages.revision`
	regionsOf = `SELECT region FROM pages WHERE id = ?`
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
	if !strings.HasPrefix(pagePath(e), "/") || strings.HasPrefix(pagePath(e), "//") {
		return sdk.Term(fmt.Errorf("path %q does not begin with one /", e.Path))
	}
	regions, err := regionsFor(ctx, e)
	if err != nil {
		return err
	}
	for _, region := range regions {
		if err := change(ctx, kind, region, e); err != nil {
			return err
		}
	}
	return nil
}

// regionsFor lists the regions that an event changes: its own, or where its
// video is listed if it names none.
func regionsFor(ctx context.Context, e *event.Event) ([]string, error) {
	if e.Region != "" {
		return []string{regionName(e.Region)}, nil
	}
	rows, err := db.Query(ctx, regionsOf, e.ID)
	if err != nil {
		return nil, err
	}
	var regions []string
	for rows.Next() {
		var region string
		if err := rows.Scan(&region); err != nil {
			return nil, err
		}
		regions = append(regions, region)
	}
	if len(regions) == 0 {
		regions = []string{regionName("")}
	}
	return regions, nil
}

// change writes one event into one region, and marks the region if that changed
// anything.
func change(ctx context.Context, kind event.Kind, region string, e *event.Event) error {
	var changed sdk.Result
	var err error
	if kind == event.Removed {
		changed, err = db.Exec(ctx, remove, region, e.ID, pagePath(e), e.Revision)
	} else {
		statement := add
		if kind == event.Updated {
			statement = update
		}
		named := e.Has(event.Path) || e.Has(event.External)
		changed, err = db.Exec(ctx, statement, region, e.ID, pagePath(e), e.Text(event.Modified, &e.Modified), e.Revision, named)
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

// flush writes the sitemaps of the dirty regions, all of them, and then tells
// IndexNow of what changed anywhere. A ping that fails spoils no file: what it
// was about stays marked, and the next firing tries again.
func flush(ctx context.Context) error {
	dirty, err := column(ctx, `SELECT region FROM dirty ORDER BY region`)
	if err != nil {
		return err
	}
	for _, region := range dirty {
		if err := write(ctx, region); err != nil {
			return err
		}
		if _, err := db.Exec(ctx, `DELETE FROM dirty WHERE region = ?`, region); err != nil {
			return err
		}
	}
	changed, err := column(ctx, `SELECT DISTINCT region FROM pages WHERE changed = 1 ORDER BY region`)
	if err != nil {
		return err
	}
	for _, region := range changed {
		if err := announce(ctx, region); err != nil {
			slog.WarnContext(ctx, "IndexNow was not told; the next firing tries again", "region", region, "error", err.Error())
			continue
		}
		if _, err := db.Exec(ctx, `UPDATE pages SET changed = 0 WHERE region = ? AND changed = 1`, region); err != nil {
			return err
		}
	}
	return nil
}

// column reads the texts of a query's one column.
func column(ctx context.Context, query string) ([]string, error) {
	rows, err := db.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	list := make([]string, 0, rows.Len())
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}
