// Package kv is the kv capability: JetStream key-value buckets.
package kv

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
)

// MaxValue bounds a value, in bytes.
const MaxValue = 1 << 20

// Bucket is one bucket as a function may use it. It looks the bucket up at the
// first use, so that a function can load before its bucket exists. It is safe
// for concurrent use.
type Bucket struct {
	js    jetstream.JetStream
	name  string
	grant manifests.KVGrant
}

var _ host.KV = (*Bucket)(nil)

// New returns the bucket of a grant.
func New(js jetstream.JetStream, name string, grant manifests.KVGrant) *Bucket {
	return &Bucket{js: js, name: name, grant: grant}
}

func (b *Bucket) open(ctx context.Context, write bool) (jetstream.KeyValue, error) {
	if write && b.grant.Mode != manifests.ModeWrite {
		return nil, host.Errorf(host.Denied, "kv: bucket %s is granted for reading only", b.name)
	}
	kv, err := b.js.KeyValue(ctx, b.name)
	if errors.Is(err, jetstream.ErrBucketNotFound) && b.grant.Create {
		kv, err = b.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: b.name})
		if errors.Is(err, jetstream.ErrBucketExists) { // another host was first
			kv, err = b.js.KeyValue(ctx, b.name)
		}
	}
	if err != nil {
		return nil, b.refusal(ctx, "open", "", err)
	}
	return kv, nil
}

// refusal turns an error of JetStream into one that a guest can act on.
func (b *Bucket) refusal(ctx context.Context, verb, key string, err error) error {
	what := fmt.Sprintf("kv: %s %s/%s: %v", verb, b.name, key, err)
	switch {
	case ctx.Err() != nil:
		return host.Errorf(host.Cancelled, "%s", what)
	case errors.Is(err, jetstream.ErrKeyExists), errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return host.Errorf(host.Conflict, "%s", what)
	case errors.Is(err, jetstream.ErrKeyNotFound), errors.Is(err, jetstream.ErrKeyDeleted), errors.Is(err, jetstream.ErrBucketNotFound):
		return host.Errorf(host.NotFound, "%s", what)
	case errors.Is(err, jetstream.ErrInvalidKey):
		return host.Errorf(host.Invalid, "%s", what)
	}
	return host.Errorf(host.Unavailable, "%s", what)
}

// Get returns a key's value.
func (b *Bucket) Get(ctx context.Context, key string) (*host.Entry, error) {
	kv, err := b.open(ctx, false)
	if err != nil {
		return nil, err
	}
	e, err := kv.Get(ctx, key)
	if err != nil {
		return nil, b.refusal(ctx, "get", key, err)
	}
	return &host.Entry{Value: e.Value(), Revision: e.Revision()}, nil
}

// Put sets a key, whatever it was.
func (b *Bucket) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	return b.set(ctx, "put", key, value, func(kv jetstream.KeyValue) (uint64, error) { return kv.Put(ctx, key, value) })
}

// Create sets a key that does not exist.
func (b *Bucket) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	return b.set(ctx, "create", key, value, func(kv jetstream.KeyValue) (uint64, error) { return kv.Create(ctx, key, value) })
}

// Update sets a key that is at a revision.
func (b *Bucket) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return b.set(ctx, "update", key, value, func(kv jetstream.KeyValue) (uint64, error) { return kv.Update(ctx, key, value, revision) })
}

func (b *Bucket) set(ctx context.Context, verb, key string, value []byte, op func(jetstream.KeyValue) (uint64, error)) (uint64, error) {
	if len(value) > MaxValue {
		return 0, host.Errorf(host.TooLarge, "kv: %s %s/%s: %d bytes are above the limit of %d", verb, b.name, key, len(value), MaxValue)
	}
	kv, err := b.open(ctx, true)
	if err != nil {
		return 0, err
	}
	revision, err := op(kv)
	if err != nil {
		return 0, b.refusal(ctx, verb, key, err)
	}
	return revision, nil
}

// Delete removes a key.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	kv, err := b.open(ctx, true)
	if err != nil {
		return err
	}
	if err := kv.Delete(ctx, key); err != nil {
		return b.refusal(ctx, "delete", key, err)
	}
	return nil
}

// Keys lists up to limit keys that begin with prefix.
func (b *Bucket) Keys(ctx context.Context, prefix string, limit int) ([]string, error) {
	kv, err := b.open(ctx, false)
	if err != nil {
		return nil, err
	}
	lister, err := kv.ListKeys(ctx)
	if err != nil {
		return nil, b.refusal(ctx, "list", prefix, err)
	}
	defer lister.Stop()
	var keys []string
	for key := range lister.Keys() {
		if strings.HasPrefix(key, prefix) && len(keys) < limit {
			keys = append(keys, key)
		}
	}
	return keys, nil
}
