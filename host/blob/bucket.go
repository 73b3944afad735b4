package blob

import (
	"bytes"
	"cmp"
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
type bucket struct {
	js      jetstream.JetStream
	name    string
	objects jetstream.ObjectStore
}

// OpenBucket opens a store in an object bucket, which must exist.
func OpenBucket(ctx context.Context, js jetstream.JetStream, name string, writable bool) (*Store, error) {
	objects, err := js.ObjectStore(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, fmt.Errorf("open object bucket %s: it does not exist; make it with: nats object add %s", name, name)
	}
	if err != nil {
		return nil, fmt.Errorf("open object bucket %s: %w", name, err)
	}
	return &Store{backend: &bucket{js, name, objects}, writable: writable}, nil
}

func (b *bucket) close() error { return nil }

func (b *bucket) put(ctx context.Context, p *host.BlobPut) (string, error) {
	meta := jetstream.ObjectMeta{Name: p.Key, Headers: nats.Header{"Content-Type": {cmp.Or(p.ContentType, contentType(p.Key))}}, Metadata: mapped(p.Metadata)}
	if p.If != "" {
		return b.putIf(ctx, meta, p)
	}
	info, err := b.objects.Put(ctx, meta, bytes.NewReader(p.Data))
	if err != nil {
		return "", objectError(ctx, "put", p.Key, err)
	}
	return info.NUID, nil
}

func (b *bucket) stat(ctx context.Context, key string) (*host.BlobInfo, error) {
	info, err := b.objects.GetInfo(ctx, key)
	if err != nil {
		return nil, objectError(ctx, "look at", key, err)
	}
	if isLink(info) { // it would lead to another bucket
		return nil, notFound(key)
	}
	described := describeObject(info)
	return &described, nil
}

func (b *bucket) get(ctx context.Context, key string, part host.Range, limit int64) (*host.Blob, error) {
	info, err := b.stat(ctx, key)
	if err != nil {
		return nil, err
	}
	length, err := within(key, part, info.Size, limit)
	if err != nil {
		return nil, err
	}
	object, err := b.objects.Get(ctx, key)
	if err != nil {
		return nil, objectError(ctx, "get", key, err)
	}
	defer object.Close()
	if now, err := object.Info(); err != nil || now.NUID != info.ETag {
		return nil, host.Errorf(host.Unavailable, "blob: get %q: it was put anew meanwhile", key)
	}
	if _, err := io.CopyN(io.Discard, object, part.Offset); err != nil {
		return nil, objectError(ctx, "get", key, err)
	}
	data := make([]byte, length)
	if _, err := io.ReadFull(object, data); err != nil {
		return nil, objectError(ctx, "get", key, err)
	}
	if part.Offset+length == info.Size { // only the end has the digest checked
		if _, err := object.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			return nil, objectError(ctx, "get", key, err)
		}
	}
	return &host.Blob{BlobInfo: *info, Data: data}, nil
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
		if !isLink(info) && !strings.HasPrefix(info.Name, reserved) && strings.HasPrefix(info.Name, prefix) && info.Name > after {
			found = append(found, describeObject(info))
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Key < found[j].Key })
	return found[:min(limit, len(found))], nil
}

func isLink(info *jetstream.ObjectInfo) bool { return info.Opts != nil && info.Opts.Link != nil }

func describeObject(info *jetstream.ObjectInfo) host.BlobInfo {
	kind := info.Headers.Get("Content-Type")
	if kind == "" {
		kind = contentType(info.Name)
	}
	return host.BlobInfo{Key: info.Name, ContentType: kind, Size: int64(info.Size), Modified: info.ModTime, ETag: info.NUID, Metadata: sorted(info.Metadata)}
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
