package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/host/blob"
	"github.com/pelton-run/pelton/host/httpc"
	"github.com/pelton-run/pelton/host/image"
	"github.com/pelton-run/pelton/host/kv"
	"github.com/pelton-run/pelton/host/publish"
	"github.com/pelton-run/pelton/host/sqlite"
	"github.com/pelton-run/pelton/manifests"
)

// resources is what the functions of a host share: its databases by name, and
// what must be closed at the end. It is safe for concurrent use.
type resources struct {
	config *Config
	nc     *nats.Conn
	js     jetstream.JetStream
	gate   *image.Gate
	sender *publish.Sender

	mu        sync.Mutex
	databases map[string]*sqlite.Database
	closers   []func() error
}

// bind makes the grants of a manifest out of this host's files, buckets and
// connections. dir is the manifest's folder.
func (r *resources) bind(ctx context.Context, m *manifests.Manifest, dir string) (*host.Grants, error) {
	g := &host.Grants{Databases: map[string]host.Database{}, Blobs: map[string]host.Blobs{}, KV: map[string]host.KV{}, Write: m.WriteDatabase(), Sender: r.sender}
	for name, grant := range m.Grants.SQLite {
		db, err := r.database(ctx, name)
		if err != nil {
			return nil, err
		}
		migrations, err := manifests.Migrations(dir, grant)
		if err != nil {
			return nil, err
		}
		if err := db.Migrate(ctx, migrations); err != nil {
			return nil, err
		}
		g.Databases[name] = db
	}
	for name, grant := range m.Grants.Blob {
		store, err := r.store(ctx, name, grant.Mode == manifests.ModeWrite)
		if err != nil {
			return nil, fmt.Errorf("open blob store %s: %w", name, err)
		}
		r.closeLater(store.Close)
		g.Blobs[name] = store
	}
	for name, grant := range m.Grants.KV {
		g.KV[name] = kv.New(r.js, name, grant)
	}
	if len(m.Grants.Publish) > 0 {
		g.Publish = publish.New(r.nc, r.js, m.Grants.Publish)
	}
	if len(m.Grants.Request) > 0 {
		g.Ask = publish.NewAsker(r.nc, m.Grants.Request)
	}
	if m.Grants.Image != nil {
		g.Images = image.New(r.gate, int64(m.Grants.Image.MaxPixels))
	}
	if len(m.Grants.HTTP) > 0 {
		client, err := httpc.New(m.Name, m.Grants.HTTP, int64(m.Limits.HTTPBody), httpc.Secrets(r.config.Secrets), r.config.Place.Networks.Prefixes()...)
		if err != nil {
			return nil, err
		}
		r.closeLater(func() error { client.Close(); return nil })
		g.HTTP = client
	}
	return g, nil
}

// databaseFile is where a database is on a host.
func databaseFile(place *manifests.Host, data, name string) string {
	if p, ok := place.Databases[name]; ok {
		return p.File
	}
	return filepath.Join(data, "sqlite", name+".db")
}

// DatabaseFile is where a database is on a host. One that is not there is an error
// that names those that are.
func DatabaseFile(place *manifests.Host, data, name string) (string, error) {
	file := databaseFile(place, data, name)
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	var there []string
	for other := range place.Databases {
		there = append(there, other)
	}
	files, _ := filepath.Glob(filepath.Join(data, "sqlite", "*.db")) // the pattern is ours
	for _, f := range files {
		there = append(there, strings.TrimSuffix(filepath.Base(f), ".db"))
	}
	if len(there) == 0 {
		return "", fmt.Errorf("database %s: %s does not exist, nor does any other below %s; name the host's folder with --data", name, file, data)
	}
	sort.Strings(there)
	return "", fmt.Errorf("database %s: %s does not exist; there are %s", name, file, strings.Join(there, ", "))
}

// database opens a database once for all functions.
func (r *resources) database(ctx context.Context, name string) (*sqlite.Database, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if db, ok := r.databases[name]; ok {
		return db, nil
	}
	open := sqlite.Open
	if r.config.Place.Databases[name].ForeignWriters {
		open = sqlite.OpenForeign
	}
	db, err := open(ctx, name, databaseFile(r.config.Place, r.config.Data, name))
	if err != nil {
		return nil, err
	}
	if _, err := db.Ready(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	r.databases[name] = db
	return db, nil
}

// store opens a blob store where the operator says that it is.
func (r *resources) store(ctx context.Context, name string, writable bool) (*blob.Store, error) {
	place := r.config.Place.Blobs[name]
	switch {
	case place.Bucket != "":
		return blob.OpenBucket(ctx, r.js, place.Bucket, writable)
	case place.S3 != nil:
		return r.storeS3(place.S3, writable)
	case place.Dir != "":
		return blob.Open(place.Dir, writable, int64(place.Quota))
	}
	return blob.Open(filepath.Join(r.config.Data, "blobs", name), writable, int64(place.Quota))
}

func (r *resources) storeS3(p *manifests.S3Place, writable bool) (*blob.Store, error) {
	s := blob.S3{Endpoint: p.Endpoint, Bucket: p.Bucket, Region: p.Region, Prefix: p.Prefix}
	if p.AccessKey != "" {
		var err error
		if s.AccessKey, err = r.config.Secrets(p.AccessKey); err != nil {
			return nil, err
		}
		if s.SecretKey, err = r.config.Secrets(p.SecretKey); err != nil {
			return nil, err
		}
	}
	return blob.OpenS3(s, writable)
}

func (r *resources) closeLater(f func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closers = append(r.closers, f)
}

func (r *resources) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, f := range r.closers {
		errs = append(errs, f())
	}
	for name, db := range r.databases {
		if err := db.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close database %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
