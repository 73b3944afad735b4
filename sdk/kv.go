package sdk

import "context"

// KV is a key-value bucket that the manifest grants.
type KV struct{ bucket string }

// KeyValue names a bucket.
func KeyValue(bucket string) KV { return KV{bucket} }

// Entry is a key's value at a revision.
type Entry struct {
	Value    []byte
	Revision uint64
}

// Get returns a key's value; [ErrNotFound] if there is none.
func (k KV) Get(ctx context.Context, key string) (Entry, error) { return kvGet(ctx, k.bucket, key) }

// Put sets a key, whatever it was, and returns its revision.
func (k KV) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	return kvPut(ctx, k.bucket, key, value)
}

// Create sets a key that does not exist; [ErrConflict] if it does.
func (k KV) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	return kvCreate(ctx, k.bucket, key, value)
}

// Update sets a key that is at a revision; [ErrConflict] if it is at another.
func (k KV) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return kvUpdate(ctx, k.bucket, key, value, revision)
}

// Delete removes a key.
func (k KV) Delete(ctx context.Context, key string) error { return kvDelete(ctx, k.bucket, key) }

// Keys lists up to limit keys that begin with prefix.
func (k KV) Keys(ctx context.Context, prefix string, limit int) ([]string, error) {
	return kvKeys(ctx, k.bucket, prefix, limit)
}
