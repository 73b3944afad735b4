// Command purge removes the pages of changed videos from a CDN's cache, many
// URLs a call. A message is acked when all of its URLs are confirmed; after a
// failure only those that are not yet confirmed are sent again.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/pelton-run/pelton/functions/event"
	"github.com/pelton-run/pelton/sdk"
)

func init() { sdk.HandleBatch(handle) }

func main() {} // a reactor is called, not run

var (
	config   = event.FromEnv()
	endpoint = os.Getenv("endpoint")
	base     = os.Getenv("base_url")
	perCall  = limit(os.Getenv("urls_per_call"))
	progress = sdk.KeyValue("purge_progress")
)

// limit is how many URLs the CDN takes in one call.
func limit(s string) int {
	if n, err := strconv.Atoi(s); err == nil && n > 0 {
		return n
	}
	return 30
}

// job is one message and what it wants purged.
type job struct {
	urls []string
	done map[string]bool // confirmed for this message by an earlier attempt
	err  error           // why it has no URLs
}

// results is what became of each URL in this invocation: nil is confirmed.
type results map[string]error

func handle(ctx context.Context, batch sdk.Batch) error {
	jobs := make([]job, batch.Len())
	for i, msg := range batch.Messages() {
		jobs[i].urls, jobs[i].err = wanted(msg)
		jobs[i].done = recall(ctx, msg, jobs[i].urls)
	}
	got := purgeAll(ctx, open(jobs))
	i := 0
	return batch.Each(ctx, func(ctx context.Context, msg *sdk.Msg) error {
		j := jobs[i]
		i++
		if j.err != nil {
			return j.err
		}
		return settle(ctx, msg, j, got)
	})
}

// wanted lists the pages that show a video, or what an event with urls asks for.
func wanted(msg *sdk.Msg) ([]string, error) {
	if event.KindOf(msg.Subject()) == event.Other {
		return nil, nil
	}
	e, err := config.Decode(msg)
	if err != nil {
		return nil, err
	}
	if len(e.URLs) > 0 {
		return e.URLs, nil
	}
	urls := []string{base + "/watch/" + url.PathEscape(e.External)}
	if e.Category != "" {
		urls = append(urls, base+"/category/"+url.PathEscape(e.Category))
	}
	return urls, nil
}

// open lists what is to be sent, each URL once.
func open(jobs []job) []string {
	var urls []string
	seen := map[string]bool{}
	for _, j := range jobs {
		for _, u := range j.urls {
			if !seen[u] && !j.done[u] {
				seen[u] = true
				urls = append(urls, u)
			}
		}
	}
	return urls
}

// purgeAll sends the URLs in calls of at most perCall. It goes on after a call
// that failed, but not against a server that asked to wait: then the rest has
// the same failure.
func purgeAll(ctx context.Context, urls []string) results {
	got := results{}
	for len(urls) > 0 {
		n := min(perCall, len(urls))
		wait, err := got.purge(ctx, urls[:n])
		urls = urls[n:]
		if wait {
			for _, u := range urls {
				got[u] = err
			}
			break
		}
	}
	return got
}

// purge sends one call and notes what became of its URLs. A call that the CDN
// refuses for good is sent again in halves, so that one bad URL does not take
// others with it.
func (got results) purge(ctx context.Context, urls []string) (wait bool, err error) {
	refused, wait, err := call(ctx, urls)
	if refused && len(urls) > 1 {
		middle := len(urls) / 2
		if wait, err = got.purge(ctx, urls[:middle]); wait {
			for _, u := range urls[middle:] {
				got[u] = err
			}
			return wait, err
		}
		return got.purge(ctx, urls[middle:])
	}
	for _, u := range urls {
		got[u] = err
	}
	return wait, err
}

// call sends one call. refused says that the CDN never takes it like that, wait
// that it wants no other one now.
func call(ctx context.Context, urls []string) (refused, wait bool, err error) {
	body, err := json.Marshal(map[string][]string{"files": urls})
	if err != nil {
		return false, false, sdk.Term(err)
	}
	resp, err := sdk.Fetch(ctx, &sdk.Request{Method: "POST", URL: endpoint, Body: body, Header: sdk.Header{"Content-Type": {"application/json"}}})
	if err != nil {
		return false, errors.Is(err, sdk.ErrCancelled), fmt.Errorf("purge: %w", err)
	}
	defer resp.Body.Close()
	switch s := resp.Status; {
	case s >= 200 && s < 300:
		return false, false, nil
	case s == 400 || s == 413 || s == 422:
		return true, false, sdk.Term(fmt.Errorf("purge: the CDN refused the call with status %d", s))
	default:
		err := fmt.Errorf("purge: status %d", s)
		if after, ok := resp.RetryAfter(time.Now()); ok {
			return false, true, sdk.NakWithDelay(err, max(after, time.Second))
		}
		return false, s == 429, err
	}
}

// settle acks a message whose URLs are all confirmed. For any other it keeps
// what was confirmed, so that the next attempt sends only the rest. What can be
// tried again is, before the message is given up on for a URL that cannot.
func settle(ctx context.Context, msg *sdk.Msg, j job, got results) error {
	var done []string
	var failure error
	for _, u := range j.urls {
		err := got[u]
		if j.done[u] || err == nil {
			done = append(done, u)
			continue
		}
		if d, _, _ := sdk.DispositionOf(err); failure == nil || d == sdk.DispositionNak {
			failure = err
		}
	}
	if failure == nil {
		forget(ctx, msg)
		return nil
	}
	if len(done) > 0 {
		if err := remember(ctx, msg, done); err != nil {
			return fmt.Errorf("keep progress: %w", err)
		}
	}
	return failure
}

// keyOf names a message's progress: its place, and when it was stored, since a
// stream that is made anew counts from 1 again.
func keyOf(msg *sdk.Msg) string {
	md := msg.Metadata()
	return md.Stream + "." + strconv.FormatUint(md.Sequence.Stream, 10) + "." + strconv.FormatInt(md.Timestamp.UnixNano(), 36)
}

// recall reads what earlier attempts confirmed for a message. Without it URLs
// are sent twice, which is harmless.
func recall(ctx context.Context, msg *sdk.Msg, urls []string) map[string]bool {
	if msg.Metadata().NumDelivered < 2 || len(urls) == 0 {
		return nil
	}
	entry, err := progress.Get(ctx, keyOf(msg))
	if err != nil {
		return nil
	}
	var list []string
	if json.Unmarshal(entry.Value, &list) != nil {
		return nil
	}
	done := make(map[string]bool, len(list))
	for _, u := range list {
		done[u] = true
	}
	return done
}

func remember(ctx context.Context, msg *sdk.Msg, done []string) error {
	value, err := json.Marshal(done)
	if err != nil {
		return err
	}
	_, err = progress.Put(ctx, keyOf(msg), value)
	return err
}

// forget removes the progress of a message that is done. That of one that became
// a dead letter stays, a key of a few bytes; nothing reads it again.
func forget(ctx context.Context, msg *sdk.Msg) {
	if msg.Metadata().NumDelivered > 1 {
		progress.Delete(ctx, keyOf(msg))
	}
}
