// Command counters counts videos by category and by source. Each video is
// counted where its newest event puts it, so that neither a repeated nor a
// stale event counts twice.
package main

import (
	"context"

	"github.com/pelton-run/pelton/functions/event"
	"github.com/pelton-run/pelton/sdk"
)

func init() { sdk.HandleBatch(handle) }

func main() {} // a reactor is called, not run

var (
	config = event.FromEnv()
	db     = sdk.SQLite("counters")
)

// The statements. Triggers of the migration keep the totals in step.
const (
	columns = `INSERT INTO videos (id, source, category, revision, removed) VALUES (?, ?, ?, ?, 0)
ON CONFLICT (id) DO UPDATE SET source = coalesce(excluded.source, source), category = coalesce(excluded.category, category),
 revision = excluded.revision, removed = 0 WHERE excluded.revision > videos.revision`
	add    = columns
	update = columns + ` AND videos.removed = 0`
	remove = `INSERT INTO videos (id, revision, removed) VALUES (?, ?, 1)
ON CONFLICT (id) DO UPDATE SET revision = excluded.revision, removed = 1 WHERE excluded.revision > videos.revision`
)

func handle(ctx context.Context, batch sdk.Batch) error { return batch.Each(ctx, count) }

func count(ctx context.Context, msg *sdk.Msg) error {
	kind := event.KindOf(msg.Subject())
	if kind == event.Other {
		return nil
	}
	e, err := config.Decode(msg)
	if err != nil {
		return err
	}
	switch kind {
	case event.Removed:
		_, err = db.Exec(ctx, remove, e.ID, e.Revision)
	case event.Updated:
		_, err = db.Exec(ctx, update, e.ID, e.Text(event.Source, &e.Source), e.Text(event.Category, &e.Category), e.Revision)
	default:
		_, err = db.Exec(ctx, add, e.ID, e.Text(event.Source, &e.Source), e.Text(event.Category, &e.Category), e.Revision)
	}
	return err
}
