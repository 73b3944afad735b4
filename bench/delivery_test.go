package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/host/publish"
	"github.com/pelton-run/pelton/manifests"
)

// BenchmarkDeliveryIndex compares the index, whose state is exactly-once, with
// native Go that batches the same statements without an inbox, and with native Go
// that commits each message. It prints where the time goes.
func BenchmarkDeliveryIndex(b *testing.B) {
	const n, alone = 20_000, 4_000
	r := newRig(b)
	r.fill(n, videoEvent)
	text, migrations := indexManifest(b)
	ours, native := Interleave(Rounds, func(round int) time.Duration {
		return r.index(text, migrations, fmt.Sprintf("ours-%d", round), n)
	}, func(round int) time.Duration {
		return r.nativeIndex(b, fmt.Sprintf("native-%d", round), n, 100, migrations)
	})
	report.Add("exactly-once index, batches of 100, vs. native Go in batches, without an inbox", "msg/s", perSecond(n, ours), perSecond(n, native), 0.7)
	single := r.nativeIndex(b, "native-single", alone, 1, migrations)
	report.Add("exactly-once index, batches of 100, vs. native Go that commits each message", "msg/s", perSecond(n, ours), perSecond(alone, single), 6)
	r.explain(b, n, migrations, ours/n)
}

// explain prints what a message of the index costs, part by part.
func (r *rig) explain(b *testing.B, n int, migrations []manifests.Migration, whole time.Duration) {
	b.Helper()
	events := make([]video, n)
	begin := time.Now()
	for i := range events {
		_, body := videoEvent(i)
		must(b, json.Unmarshal(body, &events[i]))
	}
	decode := time.Since(begin) / time.Duration(n)
	best := func(savepoints, inbox bool) time.Duration { // of a few: the disk has moods
		took := statementsOf(b, events, migrations, savepoints, inbox)
		for range 4 {
			took = min(took, statementsOf(b, events, migrations, savepoints, inbox))
		}
		return took
	}
	statements := best(false, false)
	savepoints, inbox := best(true, false)-statements, best(false, true)-statements
	rest := whole - statements - savepoints - inbox
	b.Logf("a message takes %s: statements and commit %s, savepoints %s, inbox %s; the guest, its border and the stream %s (natively decoding takes %s of that)",
		whole, statements, savepoints, inbox, rest, decode)
}

// statementsOf is what the statements of a message cost without a guest.
func statementsOf(b *testing.B, events []video, migrations []manifests.Migration, savepoints, inbox bool) time.Duration {
	b.Helper()
	db := database(b, "statements", migrations)
	defer db.Close()
	ctx := context.Background()
	begin := time.Now()
	for at := 0; at < len(events); at += 100 {
		batch := events[at : at+100]
		messages := make([]*host.Message, len(batch))
		for i := range messages {
			messages[i] = &host.Message{Stream: "S", Consumer: "d", StreamSeq: uint64(at + i + 1), Timestamp: begin}
		}
		tx, err := db.Begin(ctx)
		must(b, err)
		if inbox {
			_, err := tx.Known(ctx, "f", messages)
			must(b, err)
		}
		for _, v := range batch {
			if savepoints {
				must(b, tx.Savepoint(ctx))
			}
			_, err := tx.Exec(ctx, upsert, []any{strconv.FormatInt(v.VideoID, 10), v.ExternalID, v.Source, v.Region, v.Category, v.Title, v.Channel, strings.Join(v.Tags, " "), v.OccurredAt, v.Revision})
			must(b, err)
			if savepoints {
				must(b, tx.Release(ctx))
			}
		}
		if inbox {
			must(b, tx.Seal(ctx, "f", messages, nil))
		}
		must(b, tx.Commit(ctx))
	}
	return time.Since(begin) / time.Duration(len(events))
}

// BenchmarkDeliveryStage is a stage of a pipeline: a row, a sum, and a message
// published for each, by an outbox.
func BenchmarkDeliveryStage(b *testing.B) {
	const n, goal = 20_000, 5_000
	r := newRig(b)
	r.fill(n, func(i int) (string, []byte) { return fmt.Sprintf("video.x.%d", i), fmt.Append(nil, i) })
	must(b, r.stream("DONE", "done.*"))
	const manifest = "name: ledger\ntriggers: [{stream: S, batch: {max: 100, wait: 20ms}}]\ngrants: {sqlite: {ledger: {mode: write}}, publish: [done.*], http: [{public: true}]}\n"
	m, err := manifests.Decode("ledger.yaml", []byte(manifest))
	must(b, err)
	var took []time.Duration
	for round := range 3 {
		db := database(b, "ledger", nil)
		grants := &host.Grants{Databases: map[string]host.Database{"ledger": db}, Write: "ledger",
			Publish: publish.New(r.nc, r.js, m.Grants.Publish), Sender: publish.NewSender(r.js, nil)}
		took = append(took, r.prepare("testers", "ledger", manifest, fmt.Sprintf("stage-%d", round), grants).drain(b, n))
		must(b, db.Close())
	}
	report.Add("publishing stage with an outbox, vs. the goal", "msg/s", perSecond(n, Median(took)), goal, 1)
}
