// Command index keeps a full-text index of video events in SQLite, one
// transaction a batch. Events whose revision is older than the stored one are
// dropped; a removed video leaves a tombstone, so that a late event does not
// revive it: only one that adds the video anew, at a higher revision, does.
package main

import (
	"context"

	"github.com/pelton-run/pelton/functions/event"
	"github.com/pelton-run/pelton/sdk"
)

func init() {
	config.Fields = event.External | event.Source | event.Region | event.Category | event.Title | event.Channel | event.Tags | event.Modified
	sdk.HandleBatch(handle)
}

func main() {} // a reactor is called, not run

var (
	config = event.FromEnv()
	db     = sdk.SQLite("search")
)

// The statements. Triggers of the migration keep the full-text index in step.
const (
	columns = `INSERT INTO videos (id, external_id, source, region, category, title, channel, tags, occurred_at, revision, removed)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)
ON CONFLICT (id) DO UPDATE SET external_id = coalesce(excluded.external_id, external_id), source = coalesce(excluded.source, source),
 region = coalesce(excluded.region, region), category = coalesce(excluded.category, category),
 title = coalesce(excluded.title, title), channel = coalesce(excluded.channel, channel),
 tags = coalesce(excluded.tags, tags), occurred_at = coalesce(excluded.occurred_at, occurred_at),
 revision = excluded.revision, removed = 0
WHERE excluded.revision > videos.revision`
	add    = columns
	update = columns + ` AND videos.removed = 0`
	remove = `INSERT INTO videos (id, revision, removed) VALUES (?, ?, 1)
ON CONFLICT (id) DO UPDATE SET revision = excluded.revision, removed = 1 WHERE excluded.revision > videos.revision`
)

// handle decodes the whole batch before it writes any of it: code that runs again
// and again stays in the processor's caches, which it would leave if it took turns
// with the database's.
func handle(ctx context.Context, batch sdk.Batch) error {
	events := make([]decoded, batch.Len())
	for i, msg := range batch.Messages() {
		if event.KindOf(msg.Subject()) != event.Other {
			events[i].Event, events[i].err = config.Decode(msg)
		}
	}
	i := -1
	return batch.Each(ctx, func(ctx context.Context, _ *sdk.Msg) error {
		i++
		return events[i].apply(ctx)
	})
}

// decoded is an event, or why there is none. With neither, the message is none of
// the index's business.
type decoded struct {
	*event.Event
	err error
}

func (e *decoded) apply(ctx context.Context) error {
	if e.err != nil || e.Event == nil {
		return e.err
	}
	if e.Kind == event.Removed {
		_, err := db.Exec(ctx, remove, e.ID, e.Revision)
		return err
	}
	statement := add
	if e.Kind == event.Updated {
		statement = update
	}
	_, err := db.Exec(ctx, statement, &e.ID, e.Text(event.External, &e.External), e.Text(event.Source, &e.Source), e.Text(event.Region, &e.Region),
		e.Text(event.Category, &e.Category), e.Text(event.Title, &e.Title), e.Text(event.Channel, &e.Channel), e.Text(event.Tags, &e.Tags),
		e.Text(event.Modified, &e.Modified), e.Revision)
	return err
}
