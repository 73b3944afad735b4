package sdk

import (
	"context"
	"time"
)

// BlobStore is a blob store that the manifest grants, by its logical name.
type BlobStore struct{ name string }

// Blobs names a store.
func Blobs(name string) BlobStore { return BlobStore{name} }

// BlobInfo describes a stored blob.
type BlobInfo struct {
	Key         string
	ContentType string
	Size        int64
	Modified    time.Time
}

// Put stores a buffer under a key, whole or not at all.
func (s BlobStore) Put(ctx context.Context, key, contentType string, body Buffer) error {
	return blobPut(ctx, s.name, key, contentType, body)
}

// PutBytes stores bytes under a key.
func (s BlobStore) PutBytes(ctx context.Context, key, contentType string, data []byte) error {
	b, err := NewBuffer(ctx, data)
	if err != nil {
		return err
	}
	defer b.Close()
	return s.Put(ctx, key, contentType, b)
}

// Get reads a blob; [ErrNotFound] if there is none.
func (s BlobStore) Get(ctx context.Context, key string) (BlobInfo, Buffer, error) {
	return blobGet(ctx, s.name, key)
}

// Delete removes a blob; it is no error if there is none.
func (s BlobStore) Delete(ctx context.Context, key string) error { return blobDelete(ctx, s.name, key) }

// List returns up to limit blobs whose keys begin with prefix and are above
// after, in the order of keys.
func (s BlobStore) List(ctx context.Context, prefix, after string, limit int) ([]BlobInfo, error) {
	return blobList(ctx, s.name, prefix, after, limit)
}
