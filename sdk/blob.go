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
	Size        int64 // of the whole
	Modified    time.Time
	ETag        string // another one with other content
	Metadata    map[string]string
}

// PutOptions is what a put can say beside the content.
type PutOptions struct {
	ContentType string            // "" for that of the key's extension
	Metadata    map[string]string // names of a-z, 0-9 and -, values of printable ASCII, 2 KiB in all
	// If makes the put depend on what is there: the ETag that it replaces, or
	// [IfNew]. It fails with [ErrConflict] when that is not so.
	If string
}

// IfNew is the condition that there is no blob of the key yet.
const IfNew = "*"

// Put stores a buffer under a key, whole or not at all.
func (s BlobStore) Put(ctx context.Context, key, contentType string, body Buffer) error {
	_, err := s.PutWith(ctx, key, PutOptions{ContentType: contentType}, body)
	return err
}

// PutWith stores a buffer under a key with what the options say, and returns the
// blob's ETag.
func (s BlobStore) PutWith(ctx context.Context, key string, o PutOptions, body Buffer) (etag string, err error) {
	return blobPut(ctx, s.name, key, o, body)
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
	return blobGet(ctx, s.name, key, 0, 0)
}

// GetRange reads a part of a blob: so many bytes from an offset, or what there is of
// them; a length of 0 goes to the end. [ErrInvalid] says that it begins behind the
// end.
func (s BlobStore) GetRange(ctx context.Context, key string, offset, length int64) (BlobInfo, Buffer, error) {
	return blobGet(ctx, s.name, key, offset, length)
}

// Stat looks at a blob without reading it; [ErrNotFound] if there is none.
func (s BlobStore) Stat(ctx context.Context, key string) (BlobInfo, error) {
	return blobStat(ctx, s.name, key)
}

// Delete removes a blob; it is no error if there is none.
func (s BlobStore) Delete(ctx context.Context, key string) error { return blobDelete(ctx, s.name, key) }

// List returns up to limit blobs whose keys begin with prefix and are above
// after, in the order of keys. They come without metadata.
func (s BlobStore) List(ctx context.Context, prefix, after string, limit int) ([]BlobInfo, error) {
	return blobList(ctx, s.name, prefix, after, limit)
}
