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
	err  error // why it has none
}

func handle(ctx context.Context, batch sdk.Batch) error {
	jobs := make([]job, batch.Len())
	confirmed := map[string]bool{}
	for i, msg := range batch.Messages() {
		jobs[i].urls, jobs[i].err = wanted(msg)
		recall(ctx, msg, jobs[i].urls, confirmed)
	}
	failure := purgeAll(ctx, open(jobs, confirmed), confirmed)
	i := 0
	return batch.Each(ctx, func(ctx context.Context, msg *sdk.Msg) error {
		j := jobs[i]
		i++
		if j.err != nil {
			return j.err
		}
		return settle(ctx, msg, j.urls, confirmed, failure)
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

// open lists what is not confirmed yet, each URL once.
func open(jobs []job, confirmed map[string]bool) []string {
	var urls []string
	seen := map[string]bool{}
	for _, j := range jobs {
		for _, u := range j.urls {
			if !seen[u] && !confirmed[u] {
				seen[u] = true
				urls = append(urls, u)
			}
		}
	}
	return urls
}

// purgeAll sends the URLs in calls of at most perCall, and notes what was
// confirmed. It goes on after a call that failed, but not against a server that
// asked to wait. It returns the last failure.
func purgeAll(ctx context.Context, urls []string, confirmed map[string]bool) (failure error) {
	for len(urls) > 0 {
		n := min(perCall, len(urls))
		wait, err := purge(ctx, urls[:n])
		if err == nil {
			for _, u := range urls[:n] {
				confirmed[u] = true
			}
		} else {
			failure = err
		}
		if wait {
			return failure
		}
		urls = urls[n:]
	}
	return failure
}

// purge sends one call; wait says that the server wants no other one now.
func purge(ctx context.Context, urls []string) (wait bool, err error) {
	body, err := json.Marshal(map[string][]string{"files": urls})
	if err != nil {
		return false, sdk.Term(err)
	}
	resp, err := sdk.Fetch(ctx, &sdk.Request{Method: "POST", URL: endpoint, Body: body, Header: sdk.Header{"Content-Type": {"application/json"}}})
	if err != nil {
		return errors.Is(err, sdk.ErrCancelled), fmt.Errorf("purge: %w", err)
	}
	defer resp.Body.Close()
	switch s := resp.Status; {
	case s >= 200 && s < 300:
		return false, nil
	case s == 400 || s == 413 || s == 422:
		return false, sdk.Term(fmt.Errorf("purge: the CDN refused the call with status %d", s))
	default:
		err := fmt.Errorf("purge: status %d", s)
		if after, ok := resp.RetryAfter(time.Now()); ok {
			return true, sdk.NakWithDelay(err, max(after, time.Second))
		}
		return s == 429, err
	}
}

// settle acks a message whose URLs are all confirmed. For any other it keeps
// what was confirmed, so that the next attempt sends only the rest.
func settle(ctx context.Context, msg *sdk.Msg, urls []string, confirmed map[string]bool, failure error) error {
	var done []string
	missing := 0
	for _, u := range urls {
		if confirmed[u] {
			done = append(done, u)
		} else {
			missing++
		}
	}
	if missing == 0 {
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

// keyOf names a message's progress.
func keyOf(msg *sdk.Msg) string {
	md := msg.Metadata()
	return md.Stream + "." + strconv.FormatUint(md.Sequence.Stream, 10)
}

// recall reads what earlier attempts confirmed. Without it URLs are sent twice,
// which is harmless.
func recall(ctx context.Context, msg *sdk.Msg, urls []string, confirmed map[string]bool) {
	if msg.Metadata().NumDelivered < 2 || len(urls) == 0 {
		return
	}
	entry, err := progress.Get(ctx, keyOf(msg))
	if err != nil {
		return
	}
	var done []string
	if json.Unmarshal(entry.Value, &done) == nil {
		for _, u := range done {
			confirmed[u] = true
		}
	}
}

func remember(ctx context.Context, msg *sdk.Msg, done []string) error {
	value, err := json.Marshal(done)
	if err != nil {
		return err
	}
	_, err = progress.Put(ctx, keyOf(msg), value)
	return err
}

// forget removes the progress of a message that is done. What is left behind
// does no harm: sequences do not come again.
func forget(ctx context.Context, msg *sdk.Msg) {
	if msg.Metadata().NumDelivered > 1 {
		progress.Delete(ctx, keyOf(msg))
	}
}
