package up

import (
	"database/sql"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime/broker"
	"github.com/pelton-run/pelton/runtime/status"
)

// What a logical name is on a host is the operator's to say: a function finds its
// database in the application's file, and its blobs in a bucket or an S3 service.
func TestPlaces(t *testing.T) {
	s, err := broker.Start("127.0.0.1:0", t.TempDir(), broker.DefaultSync, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	fake := s3mem.New()
	if err := fake.CreateBucket("site"); err != nil {
		t.Fatal(err)
	}
	service := httptest.NewServer(gofakes3.New(fake).Server())
	t.Cleanup(service.Close)
	file := filepath.Join(t.TempDir(), "app.db")
	app, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	if _, err := app.Exec("CREATE TABLE orders (n INTEGER)"); err != nil {
		t.Fatal(err)
	}
	const manifest = "name: all\ntriggers: [{stream: S, filter_subjects: [s.x]}]\ngrants: {sqlite: {test: {mode: write}}, blob: {test: {mode: write}}, http: [{public: true}], kv: {TEST: {mode: write, create: true}}, publish: [out.>]}\n"
	for name, place := range map[string]manifests.BlobPlace{
		"bucket": {Bucket: "MEDIA"},
		"s3":     {S3: &manifests.S3Place{Endpoint: service.URL, Bucket: "site", Prefix: "x/", AccessKey: "key", SecretKey: "secret"}},
		"dir":    {Dir: filepath.Join(t.TempDir(), "elsewhere")},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t).write("streams.yaml", testStreams).add("all", "testers/conformance", strings.Replace(manifest, "s.x", "s."+name, 1))
			if name == "bucket" { // the first start finds none, and says so
				b := start(t, f, func(c *Config) {
					c.URL, c.Place = s.URL(), &manifests.Host{Blobs: map[string]manifests.BlobPlace{"test": place}}
				})
				v := b.figures("all")
				if v.State == status.StateOK || !strings.Contains(strings.Join(v.Reasons, " "), "nats object add MEDIA") {
					t.Errorf("without its bucket: %s %v, want what to do", v.State, v.Reasons)
				}
				if _, err := b.js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "MEDIA"}); err != nil {
					t.Fatal(err)
				}
				b.Close()
			}
			b := start(t, f, func(c *Config) {
				c.Name, c.URL = "h-"+name, s.URL()
				c.Place = &manifests.Host{Blobs: map[string]manifests.BlobPlace{"test": place}, Databases: map[string]manifests.DatabasePlace{"test": {File: file, ForeignWriters: true}}}
			})
			until(t, "all runs", 20*time.Second, func() bool { return b.figures("all").State == status.StateOK })
			b.publish("s."+name, "blob deep/key.txt")
			b.publish("s."+name, "exec INSERT INTO orders VALUES (1)")
			if v := b.done("all", 2); v.Acked != 2 {
				t.Errorf("%d acked, %v; want 2", v.Acked, b.letters("all"))
			}
			b.Close()
		})
	}
	var rows int
	if err := app.QueryRow("SELECT count(*) FROM orders").Scan(&rows); err != nil || rows != 3 {
		t.Errorf("the application sees %d rows, %v; want 3", rows, err)
	}
}
