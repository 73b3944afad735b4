package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pelton-run/pelton/host"
)

// bucket is a store in a NATS object bucket (ADR-20 of
// nats-architecture-and-design).
type bucket struct{ objects jetstream.ObjectStore }

// OpenBucket opens a store in an object bucket, which must exist.
func OpenBucket(ctx context.Context, js jetstream.JetStream, name string, writable bool) (*Store, error) {
	objects, err := js.ObjectStore(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, fmt.Errorf("open object bucket %s: it does not exist; make it with: nats object add %s", name, name)
	}
	if err != nil {
		return nil, fmt.Errorf("open object bucket %s: %w", name, err)
	}
	return &Store{backend: &bucket{objects}, writable: writable}, nil
}

func (b *bucket) close() error { return nil }

func (b *bucket) put(ctx context.Context, key, kind string, data []byte) error {
	if kind == "" {
		kind = contentType(key)
	}
	meta := jetstream.ObjectMeta{Name: key, Headers: nats.Header{"Content-Type": {kind}}}
	if _, err := b.objects.Put(ctx, meta, strings.NewReader(string(data))); err != nil {
		return objectError(ctx, "put", key, err)
	}
	return nil
}

func (b *bucket) get(ctx context.Context, key string, limit int64) (*host.Blob, error) {
	info, err := b.objects.GetInfo(ctx, key)
	if err != nil {
		return nil, objectError(ctx, "get", key, err)
	}
	if info.Opts != nil && info.Opts.Link != nil { // it would lead to another bucket
		return nil, notFound(key)
	}
	if int64(info.Size) > limit {
		return nil, tooLarge(key, int64(info.Size), limit)
	}
	object, err := b.objects.Get(ctx, key)
	if err != nil {
		return nil, objectError(ctx, "get", key, err)
	}
	defer object.Close()
	data, err := io.ReadAll(io.LimitReader(object, limit+1))
	if err != nil {
		return nil, objectError(ctx, "get", key, err)
	}
	if int64(len(data)) > limit { // it was put anew in between
		return nil, tooLarge(key, int64(len(data)), limit)
	}
	blob := &host.Blob{BlobInfo: describeObject(info), Data: data}
	blob.Size = int64(len(data))
	return blob, nil
}

func (b *bucket) remove(ctx context.Context, key string) error {
	err := b.objects.Delete(ctx, key)
	if err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
		return objectError(ctx, "delete", key, err)
	}
	return nil
}

// list reads what the bucket knows of all its objects: there is no order in it.
func (b *bucket) list(ctx context.Context, prefix, after string, limit int) ([]host.BlobInfo, error) {
	infos, err := b.objects.List(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil, objectError(ctx, "list", prefix, err)
	}
	var found []host.BlobInfo
	for _, info := range infos {
		link := info.Opts != nil && info.Opts.Link != nil
		if !link && strings.HasPrefix(info.Name, prefix) && info.Name > after {
			found = append(found, describeObject(info))
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Key < found[j].Key })
	return found[:min(limit, len(found))], nil
}

func describeObject(info *jetstream.ObjectInfo) host.BlobInfo {
	kind := info.Headers.Get("Content-Type")
	if kind == "" {
		kind = contentType(info.Name)
	}
	return host.BlobInfo{Key: info.Name, ContentType: kind, Size: int64(info.Size), Modified: info.ModTime}
}

func objectError(ctx context.Context, verb, key string, err error) error {
	switch {
	case errors.Is(err, jetstream.ErrObjectNotFound):
		return notFound(key)
	case ctx.Err() != nil:
		return cancelled(ctx)
	}
	return host.Errorf(host.Unavailable, "blob: %s %q: %v", verb, key, err)
}
