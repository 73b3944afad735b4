package demo

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// world is the outside world of the demo, on a port of this machine.
type world struct {
	origin *origin
	cdn    *cdn
	server *http.Server
	url    string
	served chan error
}

func newWorld() (*world, error) {
	o, err := newOrigin()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the demo's origin: %w", err)
	}
	w := &world{origin: o, cdn: newCDN(), url: "http://" + l.Addr().String(), served: make(chan error, 1)}
	mux := http.NewServeMux()
	mux.Handle("GET /pictures/", w.origin)
	mux.HandleFunc("POST /client/v4/zones/demo/purge_cache", w.cdn.purge)
	mux.HandleFunc("POST /indexnow", w.cdn.indexNow)
	w.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { w.served <- w.server.Serve(l) }()
	return w, nil
}

func (w *world) close() error {
	err := w.server.Close()
	if served := <-w.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// replacement is a passage of a shipped manifest that the demo changes: where
// the outside world is, and delays that suit a demonstration.
type replacement struct{ file, old, new string }

func (w *world) replacements() []replacement {
	origin := fmt.Sprintf("{origin: %q}", w.url)
	return []replacement{
		{"thumbnail.yaml", "{public: true}", origin},
		{"thumbnail.yaml", "[2s, 10s, 1m, 5m]", "[200ms, 400ms, 1s, 2s]"},
		{"purge.yaml", "origin: https://api.cloudflare.com", fmt.Sprintf("origin: %q", w.url)},
		{"purge.yaml", "https://api.cloudflare.com/client/v4/zones/ZONE/purge_cache", w.url + "/client/v4/zones/demo/purge_cache"},
		{"sitemap.yaml", `"@every 5m"`, `"@every 2s"`},
		{"sitemap.yaml", `{origin: "https://api.indexnow.org", methods: [POST], paths: [/indexnow]}`, fmt.Sprintf("{origin: %q, methods: [POST], paths: [/indexnow]}", w.url)},
		{"sitemap.yaml", "https://api.indexnow.org/indexnow", w.url + "/indexnow"},
		{"sitemap.yaml", `indexnow_key: ""`, `indexnow_key: demo-key`},
	}
}

// prepareFolder copies the shipped functions into a folder of the demo's own
// and turns their manifests to the demo's world.
func (w *world) prepareFolder(from, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return fmt.Errorf("copy functions: %w; build them with make build, or name their folder with --dir", err)
	}
	for _, r := range w.replacements() {
		path := filepath.Join(to, r.file)
		b, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read shipped manifest: %w", err)
		}
		if !strings.Contains(string(b), r.old) {
			return fmt.Errorf("%s: has no %s: the demo runs the shipped manifests as they are", path, r.old)
		}
		b = []byte(strings.Replace(string(b), r.old, r.new, 1))
		if err := os.WriteFile(path, b, 0o600); err != nil {
			return fmt.Errorf("write manifest: %w", err)
		}
	}
	return nil
}
