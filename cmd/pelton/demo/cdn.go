package demo

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
)

// The CDN's rules.
const (
	cdnToken  = "demo-token"
	cdnLimit  = 30 // URLs a call
	cdnBusyAt = 2  // the call that is told to come back
	cdnWait   = 1  // seconds
)

// cdn stands in for a CDN's purge endpoint and for IndexNow, and keeps what it
// was told.
type cdn struct {
	mu       sync.Mutex
	purged   map[string]int // confirmed purges by URL
	calls    int
	tooLarge int // calls above the limit
	strangers,
	busy int // calls without the token; calls sent away
	pinged map[string]int // URLs that IndexNow was told of
}

func newCDN() *cdn { return &cdn{purged: map[string]int{}, pinged: map[string]int{}} }

// purge serves POST /client/v4/zones/<zone>/purge_cache with {"files": [...]}.
func (c *cdn) purge(w http.ResponseWriter, r *http.Request) {
	var body struct{ Files []string }
	err := json.NewDecoder(r.Body).Decode(&body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	switch {
	case r.Header.Get("Authorization") != "Bearer "+cdnToken:
		c.strangers++
		http.Error(w, `{"success":false}`, http.StatusForbidden)
	case err != nil || len(body.Files) == 0:
		http.Error(w, `{"success":false}`, http.StatusBadRequest)
	case len(body.Files) > cdnLimit:
		c.tooLarge++
		http.Error(w, `{"success":false}`, http.StatusBadRequest)
	case c.calls == cdnBusyAt:
		c.busy++
		w.Header().Set("Retry-After", fmt.Sprint(cdnWait))
		http.Error(w, `{"success":false}`, http.StatusTooManyRequests)
	default:
		for _, u := range body.Files {
			c.purged[u]++
		}
		fmt.Fprint(w, `{"success":true}`)
	}
}

// indexNow serves POST /indexnow with {"urlList": [...]}.
func (c *cdn) indexNow(w http.ResponseWriter, r *http.Request) {
	var body struct{ URLList []string }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range body.URLList {
		c.pinged[u]++
	}
	w.WriteHeader(http.StatusAccepted)
}
