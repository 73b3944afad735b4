// Package blob is the blob capability: named bytes in a directory, a NATS object
// bucket or an S3 bucket, with the same rules for keys in all of them.
package blob

import (
	"context"
	"maps"
	"slices"
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

// Limits of what describes a blob: those of S3, which are the narrowest.
const (
	MaxMetadata    = 2 << 10 // bytes of all names and values
	MaxContentType = 255
	maxCondition   = 255
)

// reserved begins the names that are ours, in every part of a key.
const reserved = ".pelton-"

// backend keeps blobs somewhere. Keys have been checked.
type backend interface {
	put(ctx context.Context, p *host.BlobPut) (etag string, err error)
	get(ctx context.Context, key string, part host.Range, limit int64) (*host.Blob, error)
	stat(ctx context.Context, key string) (*host.BlobInfo, error)
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
func (s *Store) Put(ctx context.Context, p *host.BlobPut) (etag string, err error) {
	if err := s.check(ctx, p.Key, true); err != nil {
		return "", err
	}
	if err := checkDescription(p); err != nil {
		return "", err
	}
	return s.put(ctx, p)
}

// Get implements host.Blobs.
func (s *Store) Get(ctx context.Context, key string, part host.Range, limit int64) (*host.Blob, error) {
	if err := s.check(ctx, key, false); err != nil {
		return nil, err
	}
	if part.Offset < 0 || part.Length < 0 {
		return nil, host.Errorf(host.Invalid, "blob: %d bytes from byte %d are no part of anything", part.Length, part.Offset)
	}
	part.Length = min(part.Length, limit+1) // one more is refused as well as many more
	return s.get(ctx, key, part, limit)
}

// Stat implements host.Blobs.
func (s *Store) Stat(ctx context.Context, key string) (*host.BlobInfo, error) {
	if err := s.check(ctx, key, false); err != nil {
		return nil, err
	}
	return s.stat(ctx, key)
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

// checkDescription refuses what not every kind of store keeps as it is.
func checkDescription(p *host.BlobPut) error {
	if len(p.ContentType) > MaxContentType || !printable(p.ContentType) {
		return host.Errorf(host.Invalid, "blob: the content type of %q is longer than %d bytes, or not printable ASCII", p.Key, MaxContentType)
	}
	if len(p.If) > maxCondition || !printable(p.If) {
		return host.Errorf(host.Invalid, "blob: the condition on %q is no ETag", p.Key)
	}
	size, seen := 0, map[string]bool{}
	for _, m := range p.Metadata {
		name, value := m[0], m[1]
		if size += len(name) + len(value); size > MaxMetadata {
			return host.Errorf(host.TooLarge, "blob: the metadata of %q has more than %d bytes", p.Key, MaxMetadata)
		}
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }) || seen[name] {
			return host.Errorf(host.Invalid, "blob: %q is no name of metadata, or comes twice: a-z, 0-9 and - are in one", name)
		}
		if !printable(value) || strings.TrimSpace(value) != value {
			return host.Errorf(host.Invalid, "blob: metadata %s of %q is not printable ASCII, or has spaces around it", name, p.Key)
		}
		seen[name] = true
	}
	return nil
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r > 0x7e })
}

// sorted makes metadata of a map.
func sorted(m map[string]string) [][2]string {
	if len(m) == 0 {
		return nil
	}
	list := make([][2]string, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, [2]string{strings.ToLower(name), m[name]})
	}
	return list
}

// mapped is the other way.
func mapped(list [][2]string) map[string]string {
	if len(list) == 0 {
		return nil
	}
	m := make(map[string]string, len(list))
	for _, p := range list {
		m[p[0]] = p[1]
	}
	return m
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
		case strings.HasPrefix(segment, reserved):
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

// within returns how much of a blob of so many bytes a part is, and refuses more
// than limit.
func within(key string, part host.Range, size, limit int64) (int64, error) {
	length, err := part.Of(size)
	if err == nil && length > limit {
		return 0, tooLarge(key, length, limit)
	}
	return length, err
}

func conflict(key string) error {
	return host.Errorf(host.Conflict, "blob: %q is there already, or is another one than the condition says", key)
}
