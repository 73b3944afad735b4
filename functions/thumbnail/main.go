// Command thumbnail fetches a video's picture and stores it as WebP at several
// widths. What no retry mends (404, 410, an HTML page, a broken or giant
// picture) is a dead letter; the rest is tried again.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pelton-run/pelton/functions/event"
	"github.com/pelton-run/pelton/sdk"
)

func init() { sdk.Handle(handle) }

func main() {} // a reactor is called, not run

var (
	config = event.FromEnv()
	thumbs = sdk.Blobs("thumbs")
	widths = parseWidths(os.Getenv("widths"))
)

// parseWidths reads a list such as 160,320,640; what is not a width is left out.
func parseWidths(s string) []int {
	var list []int
	for _, part := range strings.Split(s, ",") {
		if n, err := strconv.Atoi(strings.TrimSpace(part)); err == nil && n > 0 {
			list = append(list, n)
		}
	}
	if len(list) == 0 {
		return []int{160, 320, 640}
	}
	return list
}

func handle(ctx context.Context, msg *sdk.Msg) error {
	if event.KindOf(msg.Subject()) == event.Removed {
		return nil
	}
	e, err := config.Decode(msg)
	if err != nil {
		return err
	}
	if e.Picture == "" {
		return sdk.Term(errors.New("the event has no " + config.Picture))
	}
	if !safeName(e.External) {
		return sdk.Term(fmt.Errorf("%q cannot name a file", e.External))
	}
	picture, err := fetch(ctx, e.Picture)
	if err != nil {
		return err
	}
	rendered, err := render(ctx, picture)
	if err != nil {
		return err
	}
	for i, p := range rendered.Pictures {
		if err := thumbs.Put(ctx, key(e.External, widths[i]), "image/webp", p.Body); err != nil {
			return fmt.Errorf("store thumbnail: %w", err)
		}
	}
	return announce(ctx, e.External, rendered)
}

// safeName reports whether a name can be a file's and a subject's token.
func safeName(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r == '/' || r == '\\' || r == '*' || r == '>' || r == '.' || r == 0x7f
	})
}

// key names a thumbnail's file; it tells the width.
func key(external string, width int) string { return external + "_" + strconv.Itoa(width) + ".webp" }

// maxRedirects bounds the hops to a picture. Each is checked against the grants.
const maxRedirects = 3

func fetch(ctx context.Context, from string) (sdk.Buffer, error) {
	resp, err := sdk.Fetch(ctx, &sdk.Request{URL: from})
	for hops := 0; err == nil && hops < maxRedirects; hops++ {
		to := redirect(from, resp)
		if to == "" {
			break
		}
		from = to
		resp, err = sdk.Fetch(ctx, &sdk.Request{URL: from})
	}
	switch {
	case errors.Is(err, sdk.ErrInvalid), errors.Is(err, sdk.ErrDenied), errors.Is(err, sdk.ErrTooLarge):
		return sdk.Buffer{}, sdk.Term(fmt.Errorf("fetch picture: %w", err))
	case err != nil:
		return sdk.Buffer{}, fmt.Errorf("fetch picture: %w", err)
	}
	return resp.Body, judge(resp)
}

// redirect returns where an answer points to, "" if it does not.
func redirect(from string, resp *sdk.Response) string {
	if resp.Status < 301 || resp.Status > 308 || resp.Status == 304 {
		return ""
	}
	base, err := url.Parse(from)
	if err != nil {
		return ""
	}
	to, err := base.Parse(resp.Header.Get("Location"))
	if err != nil || resp.Header.Get("Location") == "" {
		return ""
	}
	return to.String()
}

// judge tells a permanent answer from one to try again.
func judge(resp *sdk.Response) error {
	switch s := resp.Status; {
	case s == 200:
		return nil
	case s == 408 || s == 425 || s == 429 || s >= 500:
		err := fmt.Errorf("fetch picture: status %d", s)
		if wait, ok := resp.RetryAfter(time.Now()); ok {
			return sdk.NakWithDelay(err, wait)
		}
		return err
	default:
		return sdk.Term(fmt.Errorf("fetch picture: status %d", s))
	}
}

func render(ctx context.Context, picture sdk.Buffer) (*sdk.Rendered, error) {
	targets := make([]sdk.Target, len(widths))
	for i, w := range widths {
		targets[i] = sdk.Target{Width: w, Format: "webp"}
	}
	rendered, err := sdk.Render(ctx, picture, targets...)
	if errors.Is(err, sdk.ErrUnsupported) || errors.Is(err, sdk.ErrTooLarge) {
		return nil, sdk.Term(err)
	}
	return rendered, err
}

// thumbnail is one picture in the announcement.
type thumbnail struct {
	Key    string `json:"key"`
	Width  int    `json:"width"`
	Height int    `json:"height"`
	Bytes  int    `json:"bytes"`
}

// announce tells the stream that the thumbnails are there.
func announce(ctx context.Context, external string, r *sdk.Rendered) error {
	list := make([]thumbnail, len(r.Pictures))
	for i, p := range r.Pictures {
		list[i] = thumbnail{Key: key(external, widths[i]), Width: p.Width, Height: p.Height, Bytes: p.Body.Len()}
	}
	body, err := json.Marshal(map[string]any{"schema": 1, "external_id": external, "thumbnails": list})
	if err != nil {
		return sdk.Term(err)
	}
	return sdk.Publish(ctx, "video.enriched.thumbnail."+external, body)
}
