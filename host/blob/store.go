// Package blob is the blob capability: named bytes in a directory, a NATS object
// bucket or an S3 bucket, with the same rules for keys in all of them.
package blob

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/pelton-run/pelton/host"
)

// MaxKey bounds a key, in bytes; MaxSegment each part between slashes, which may
// be a file's name; MaxList the blobs of one list.
const (
	MaxKey     = 1024
	MaxSegment = 200
	MaxList    = 1000
)

// backend keeps blobs somewhere. Keys have been checked.
type backend interface {
	put(ctx context.Context, key, contentType string, data []byte) error
	get(ctx context.Context, key string, limit int64) (*host.Blob, error)
	remove(ctx context.Context, key string) error // one that does not exist is removed already
	list(ctx context.Context, prefix, after string, limit int) ([]host.BlobInfo, error)
	close() error
}

// Store is a blob store. It is safe for concurrent use. Close must be called.
type Store struct {
	backend
	writable bool
}

var _ host.Blobs = (*Store)(nil)

// Close gives back what the store holds open.
func (s *Store) Close() error { return s.close() }

// Put implements host.Blobs: a blob is stored whole, and readers see the old one or
// the new one. It is durable when Put returns.
func (s *Store) Put(ctx context.Context, key, contentType string, data []byte) error {
	if err := s.check(ctx, key, true); err != nil {
		return err
	}
	return s.put(ctx, key, contentType, data)
}

// Get implements host.Blobs.
func (s *Store) Get(ctx context.Context, key string, limit int64) (*host.Blob, error) {
	if err := s.check(ctx, key, false); err != nil {
		return nil, err
	}
	return s.get(ctx, key, limit)
}

// Delete implements host.Blobs: a blob that does not exist is deleted already.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := s.check(ctx, key, true); err != nil {
		return err
	}
	return s.remove(ctx, key)
}

// List implements host.Blobs.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]host.BlobInfo, error) {
	if ctx.Err() != nil {
		return nil, cancelled(ctx)
	}
	if limit <= 0 || limit > MaxList {
		limit = MaxList
	}
	return s.list(ctx, prefix, after, limit)
}

func (s *Store) check(ctx context.Context, key string, write bool) error {
	if write && !s.writable {
		return host.Errorf(host.Denied, "blob: the store is granted for reading only")
	}
	if ctx.Err() != nil {
		return cancelled(ctx)
	}
	return CheckKey(key)
}

// CheckKey refuses what is not a plain relative path of printable text.
func CheckKey(key string) error {
	if key == "" || len(key) > MaxKey || !utf8.ValidString(key) {
		return host.Errorf(host.Invalid, "blob: a key has 1 to %d bytes of UTF-8", MaxKey)
	}
	for _, segment := range strings.Split(key, "/") {
		switch {
		case segment == "" || segment == "." || segment == "..":
			return host.Errorf(host.Invalid, "blob: key %q has an empty part, . or ..", key)
		case len(segment) > MaxSegment:
			return host.Errorf(host.Invalid, "blob: key %q has a part of more than %d bytes", key, MaxSegment)
		case strings.HasPrefix(segment, temporary):
			return host.Errorf(host.Invalid, "blob: key %q has a reserved name", key)
		case strings.ContainsFunc(segment, func(r rune) bool { return r < 0x20 || r == 0x7f || r == '\\' }):
			return host.Errorf(host.Invalid, "blob: key %q has a control character or a backslash", key)
		}
	}
	return nil
}

func cancelled(ctx context.Context) error {
	return host.Errorf(host.Cancelled, "blob: %v", context.Cause(ctx))
}

func notFound(key string) error { return host.Errorf(host.NotFound, "blob: %q does not exist", key) }

func tooLarge(key string, size, limit int64) error {
	return host.Errorf(host.TooLarge, "blob: %q has %d bytes, the limit is %d", key, size, limit)
}
