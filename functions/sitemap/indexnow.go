package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/pelton-run/pelton/sdk"
)

// maxPing is how many URLs IndexNow takes in one call
// (https://www.indexnow.org/documentation).
const maxPing = 10_000

var (
	indexNow = os.Getenv("indexnow")     // the endpoint; none, no pings
	key      = os.Getenv("indexnow_key") // the site's own key; none, no pings
)

// announce tells IndexNow which URLs of a region changed.
func announce(ctx context.Context, region string) error {
	if indexNow == "" || key == "" {
		return nil
	}
	for after := ""; ; {
		rows, err := db.Query(ctx, `SELECT id, path FROM pages WHERE region = ? AND changed = 1 AND id > ? ORDER BY id LIMIT ?`, region, after, maxPing)
		if err != nil {
			return err
		}
		urls := make([]string, 0, rows.Len())
		for rows.Next() {
			var path string
			if err := rows.Scan(&after, &path); err != nil {
				return err
			}
			urls = append(urls, base+path)
		}
		if len(urls) == 0 {
			return nil
		}
		if err := ping(ctx, urls); err != nil {
			return err
		}
	}
}

func ping(ctx context.Context, urls []string) error {
	site, err := url.Parse(base)
	if err != nil {
		return sdk.Term(fmt.Errorf("parse base_url: %w", err))
	}
	body, err := json.Marshal(map[string]any{"host": site.Host, "key": key, "urlList": urls})
	if err != nil {
		return sdk.Term(err)
	}
	resp, err := sdk.Fetch(ctx, &sdk.Request{Method: "POST", URL: indexNow, Body: body, Header: sdk.Header{"Content-Type": {"application/json; charset=utf-8"}}})
	if err != nil {
		return fmt.Errorf("ping IndexNow: %w", err)
	}
	defer resp.Body.Close()
	if resp.Status == 200 || resp.Status == 202 {
		return nil
	}
	err = fmt.Errorf("ping IndexNow: status %d", resp.Status)
	if wait, ok := resp.RetryAfter(time.Now()); ok {
		return sdk.NakWithDelay(err, wait)
	}
	return err
}
