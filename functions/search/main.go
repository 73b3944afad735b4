// Command search answers requests for videos from the index: {"q": "words",
// "limit": 20}. The user's text is data: each word is quoted, so that it is
// never read as FTS5 syntax.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pelton-run/pelton/sdk"
)

func init() { sdk.Handle(handle) }

func main() {} // a reactor is called, not run

// Bounds of a query.
const (
	defaultLimit = 20
	maxLimit     = 100
	maxWords     = 32
)

var db = sdk.SQLite("search")

const statement = `SELECT v.id, coalesce(v.external_id, v.id), v.title, v.channel, v.category, v.source, v.region, v.revision
FROM videos_fts JOIN videos v ON v.doc = videos_fts.rowid
WHERE videos_fts MATCH ? AND v.removed = 0 ORDER BY rank, v.doc DESC LIMIT ?`

type query struct {
	Q     string `json:"q"`
	Limit int    `json:"limit"`
}

// Hit is one video that was found. Revision keeps all digits.
type Hit struct {
	ID         string `json:"id"`
	ExternalID string `json:"external_id"`
	Title      string `json:"title"`
	Channel    string `json:"channel,omitempty"`
	Category   string `json:"category,omitempty"`
	Source     string `json:"source,omitempty"`
	Region     string `json:"region,omitempty"`
	Revision   int64  `json:"revision"`
}

func handle(ctx context.Context, msg *sdk.Msg) error {
	q, err := decode(msg.Data())
	if err != nil {
		return msg.RespondError("400", err.Error(), nil)
	}
	hits, err := find(ctx, q)
	if err != nil {
		return msg.RespondError("500", err.Error(), nil)
	}
	body, err := json.Marshal(map[string]any{"hits": hits, "count": len(hits)})
	if err != nil {
		return err
	}
	return msg.Respond(body)
}

func decode(data []byte) (query, error) {
	q := query{Limit: defaultLimit}
	if err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF")), &q); err != nil {
		return q, fmt.Errorf(`decode query: %w; send {"q": "words"}`, err)
	}
	if q.Limit < 1 || q.Limit > maxLimit {
		return q, fmt.Errorf("limit %d is not between 1 and %d", q.Limit, maxLimit)
	}
	return q, nil
}

func find(ctx context.Context, q query) ([]Hit, error) {
	hits := []Hit{}
	match := quote(q.Q)
	if match == "" {
		return hits, nil
	}
	rows, err := db.Query(ctx, statement, match, q.Limit)
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		var h Hit
		if err := rows.Scan(&h.ID, &h.ExternalID, &h.Title, &h.Channel, &h.Category, &h.Source, &h.Region, &h.Revision); err != nil {
			return nil, err
		}
		hits = append(hits, h)
	}
	return hits, nil
}

// quote makes an FTS5 query of a user's text: every word becomes a quoted
// string, with its own quotes doubled, and all must be found. FTS5 splits a
// string such as "multi-agent" into a phrase of its own accord.
func quote(text string) string {
	words := strings.Fields(strings.ReplaceAll(text, "\x00", " "))
	words = words[:min(len(words), maxWords)]
	for i, w := range words {
		words[i] = `"` + strings.ReplaceAll(w, `"`, `""`) + `"`
	}
	return strings.Join(words, " ")
}
