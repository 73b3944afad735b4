// Package blob is the blob capability. Its store is a directory, opened so that
// no key and no symbolic link leads out of it.
package blob

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"os"
	"path"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pelton-run/pelton/host"
)

// MaxKey bounds a key, in bytes; MaxSegment each part between slashes, which is
// a file's name.
const (
	MaxKey     = 1024
	MaxSegment = 200
	MaxList    = 1000
)

// temporary is the folder of files that are being written. CheckKey refuses
// keys with it. What a killed host left there is removed when it is older than
// staleAfter, longer than any write takes.
const (
	temporary  = ".pelton-tmp"
	staleAfter = time.Hour
)

// Directory is a blob store in a directory: a blob is a file whose path is its
// key, so that other programs can serve it. The content type follows the key's
// extension. It is safe for concurrent use.
type Directory struct {
	root *os.Root
	mode string
}

var _ host.Blobs = (*Directory)(nil)

// Open opens a store and creates its directory if need be. A store that is not
// writable refuses Put and Delete.
func Open(dir string, writable bool) (*Directory, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create blob directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open blob directory: %w", err)
	}
	d := &Directory{root: root, mode: "read"}
	if writable {
		d.mode = "write"
		if err := d.sweep(); err != nil {
			return nil, errors.Join(fmt.Errorf("sweep blob directory: %w", err), root.Close())
		}
	}
	return d, nil
}

// sweep makes the folder for files that are being written, and removes what is
// stale there.
func (d *Directory) sweep() error {
	if err := d.root.Mkdir(temporary, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	entries, err := fs.ReadDir(d.root.FS(), temporary)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && time.Since(info.ModTime()) > staleAfter {
			err = d.root.Remove(path.Join(temporary, e.Name()))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // another host swept it
			return err
		}
	}
	return nil
}

// Close closes the directory.
func (d *Directory) Close() error { return d.root.Close() }

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

// Put stores a blob whole: readers see the old one or the new one, and it is
// on the disk when Put returns.
func (d *Directory) Put(ctx context.Context, key, _ string, data []byte) error {
	if err := d.check(ctx, key, true); err != nil {
		return err
	}
	if dir := path.Dir(key); dir != "." {
		if err := d.root.MkdirAll(dir, 0o755); err != nil {
			return fileError("put", key, err)
		}
	}
	name := path.Join(temporary, rand.Text())
	if err := d.write(name, data); err != nil {
		d.root.Remove(name) // what is left is swept later
		return fileError("put", key, err)
	}
	if err := d.root.Rename(name, key); err != nil {
		d.root.Remove(name)
		return fileError("put", key, err)
	}
	return d.syncFolder(path.Dir(key), key)
}

func (d *Directory) check(ctx context.Context, key string, write bool) error {
	if write && d.mode != "write" {
		return host.Errorf(host.Denied, "blob: the store is granted for reading only")
	}
	if ctx.Err() != nil {
		return host.Errorf(host.Cancelled, "blob: %v", context.Cause(ctx))
	}
	return CheckKey(key)
}

func (d *Directory) write(name string, data []byte) error {
	f, err := d.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// syncFolder makes the rename durable.
func (d *Directory) syncFolder(dir, key string) error {
	f, err := d.root.Open(dir)
	if err != nil {
		return fileError("put", key, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fileError("put", key, err)
	}
	return nil
}

// Get reads a blob of at most limit bytes.
func (d *Directory) Get(ctx context.Context, key string, limit int64) (*host.Blob, error) {
	if err := d.check(ctx, key, false); err != nil {
		return nil, err
	}
	info, err := d.root.Stat(key)
	if err != nil {
		return nil, fileError("get", key, err)
	}
	if !info.Mode().IsRegular() {
		return nil, host.Errorf(host.NotFound, "blob: %q does not exist", key)
	}
	if info.Size() > limit {
		return nil, host.Errorf(host.TooLarge, "blob: %q has %d bytes, the limit is %d", key, info.Size(), limit)
	}
	data, err := d.root.ReadFile(key)
	if err != nil {
		return nil, fileError("get", key, err)
	}
	b := &host.Blob{BlobInfo: describe(key, info), Data: data}
	b.Size = int64(len(data))
	return b, nil
}

// Delete removes a blob; one that does not exist is removed already.
func (d *Directory) Delete(ctx context.Context, key string) error {
	if err := d.check(ctx, key, true); err != nil {
		return err
	}
	if err := d.root.Remove(key); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fileError("delete", key, err)
	}
	return nil
}

// List returns blobs by prefix, in the order of their keys.
func (d *Directory) List(ctx context.Context, prefix, after string, limit int) ([]host.BlobInfo, error) {
	if limit <= 0 || limit > MaxList {
		limit = MaxList
	}
	var found []host.BlobInfo
	err := fs.WalkDir(d.root.FS(), ".", func(p string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return host.Errorf(host.Cancelled, "blob: %v", context.Cause(ctx))
		}
		if err == nil && p == temporary {
			return fs.SkipDir
		}
		if err != nil || e.IsDir() || !e.Type().IsRegular() {
			return err
		}
		if !strings.HasPrefix(p, prefix) || p <= after {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		found = append(found, describe(p, info))
		return nil
	})
	if err != nil {
		return nil, fileError("list", prefix, err)
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Key < found[j].Key })
	return found[:min(limit, len(found))], nil
}

func describe(key string, info fs.FileInfo) host.BlobInfo {
	return host.BlobInfo{Key: key, ContentType: contentType(key), Size: info.Size(), Modified: info.ModTime()}
}

// contentType is the type that a web server would send for the key.
func contentType(key string) string {
	switch ext := strings.ToLower(path.Ext(key)); ext {
	case ".webp":
		return "image/webp"
	case ".xml":
		return "application/xml"
	default:
		if t := mime.TypeByExtension(ext); t != "" {
			return t
		}
	}
	return "application/octet-stream"
}

func fileError(verb, key string, err error) error {
	var refused *host.Error
	switch {
	case errors.As(err, &refused):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return host.Errorf(host.NotFound, "blob: %q does not exist", key)
	}
	var p *fs.PathError // its path would name the host's folders
	if errors.As(err, &p) {
		err = p.Err
	}
	return host.Errorf(host.Unavailable, "blob: %s %q: %v", verb, key, err)
}
