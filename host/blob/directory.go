package blob

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"os"
	"path"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/pelton-run/pelton/host"
)

// temporary is the folder of files that are being written. CheckKey refuses
// keys with it. What a killed host left there is removed when it is older than
// staleAfter, longer than any write takes.
const (
	temporary  = ".pelton-tmp"
	staleAfter = time.Hour
)

// directory is a store in a directory: a blob is a file whose path is its key, so
// that other programs can serve it. Metadata, and a content type that does not follow
// from the key's extension, lie beside it in a file of ours.
// No key and no symbolic link leads out of it.
type directory struct {
	root  *os.Root
	quota *quota
}

// Open opens a store in a directory, and creates that if need be. One that is not
// writable refuses Put and Delete. most bounds the bytes of all blobs, 0 does not.
func Open(dir string, writable bool, most int64) (*Store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create blob directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open blob directory: %w", err)
	}
	d := &directory{root: root, quota: &quota{most: most}}
	if writable {
		if err := d.sweep(); err != nil {
			return nil, errors.Join(fmt.Errorf("sweep blob directory: %w", err), root.Close())
		}
	}
	return &Store{backend: d, writable: writable}, nil
}

// sweep makes our folders, and removes what is stale of the files that were being
// written.
func (d *directory) sweep() error {
	for _, dir := range []string{temporary, descriptions} {
		if err := d.root.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
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

func (d *directory) close() error { return d.root.Close() }

// put stores a blob whole: readers see the old one or the new one, and it is
// on the disk when put returns. Whoever changes a key holds its lock.
func (d *directory) put(ctx context.Context, p *host.BlobPut) (string, error) {
	if dir := path.Dir(p.Key); dir != "." {
		if err := d.root.MkdirAll(dir, 0o755); err != nil {
			return "", fileError("put", p.Key, err)
		}
	}
	if err := d.quota.admit(ctx, d, int64(len(p.Data))); err != nil {
		return "", err
	}
	name := path.Join(temporary, rand.Text())
	if err := d.write(name, p.Data); err != nil {
		d.root.Remove(name) // what is left is swept later
		return "", fileError("put", p.Key, err)
	}
	etag, err := d.replace(name, p)
	if err != nil {
		d.root.Remove(name)
		return "", err
	}
	return etag, d.syncFolder(path.Dir(p.Key), p.Key)
}

// replace gives a written file its key, with what describes it.
func (d *directory) replace(name string, p *host.BlobPut) (string, error) {
	unlock, err := d.lock(p.Key)
	if err != nil {
		return "", fileError("put", p.Key, err)
	}
	defer unlock()
	before, size, err := d.before(p.Key)
	if err != nil {
		return "", err
	}
	if p.If == host.IfNew && before != "" || p.If != host.IfNew && p.If != "" && p.If != before {
		return "", conflict(p.Key)
	}
	etag, err := d.stamp(name, before)
	if err != nil {
		return "", fileError("put", p.Key, err)
	}
	if err := d.remember(p, etag); err != nil {
		return "", fileError("put", p.Key, err)
	}
	if err := d.root.Rename(name, p.Key); err != nil {
		return "", fileError("put", p.Key, err)
	}
	d.forget(p.Key, before)
	d.quota.add(int64(len(p.Data)) - size)
	return etag, nil
}

// stamp gives a file a time of its own, so that its ETag is not the one before: the
// kernel's clock of files goes by milliseconds.
func (d *directory) stamp(name, before string) (string, error) {
	for at, step := time.Now(), time.Microsecond; ; at, step = at.Add(step), 2*step {
		if err := d.root.Chtimes(name, at, at); err != nil {
			return "", err
		}
		info, err := d.root.Stat(name)
		if err != nil {
			return "", err
		}
		if etag := etagOf(info); etag != before {
			return etag, nil
		}
	}
}

// etagOf is a file's: when it was written, and how long it is.
func etagOf(info fs.FileInfo) string {
	return strconv.FormatInt(info.ModTime().UnixNano(), 36) + "-" + strconv.FormatInt(info.Size(), 36)
}

// before returns the ETag and the size of what is under a key, "" for nothing.
func (d *directory) before(key string) (etag string, size int64, err error) {
	info, err := d.root.Stat(key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", 0, nil
	case err != nil:
		return "", 0, fileError("put", key, err)
	case !info.Mode().IsRegular():
		return "", 0, host.Errorf(host.Conflict, "blob: put %q: there is a folder of that name", key)
	}
	return etagOf(info), info.Size(), nil
}

func (d *directory) write(name string, data []byte) error {
	f, err := d.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// syncFolder makes the rename durable.
func (d *directory) syncFolder(dir, key string) error {
	f, err := d.root.Open(dir)
	if err != nil {
		return fileError("put", key, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fileError("put", key, err)
	}
	return nil
}

func (d *directory) stat(_ context.Context, key string) (*host.BlobInfo, error) {
	info, err := d.root.Stat(key)
	if err != nil {
		return nil, fileError("look at", key, err)
	}
	if !info.Mode().IsRegular() {
		return nil, notFound(key)
	}
	described := d.describe(key, info)
	return &described, nil
}

func (d *directory) get(_ context.Context, key string, part host.Range, limit int64) (*host.Blob, error) {
	f, err := d.root.OpenFile(key, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, fileError("get", key, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fileError("get", key, err)
	}
	if !info.Mode().IsRegular() {
		return nil, notFound(key)
	}
	length, err := within(key, part, info.Size(), limit)
	if err != nil {
		return nil, err
	}
	data := make([]byte, length)
	if _, err := f.ReadAt(data, part.Offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, fileError("get", key, err)
	}
	return &host.Blob{BlobInfo: d.describe(key, info), Data: data}, nil
}

func (d *directory) remove(_ context.Context, key string) error {
	unlock, err := d.lock(key)
	if err != nil {
		return fileError("delete", key, err)
	}
	defer unlock()
	info, err := d.root.Stat(key)
	if err == nil {
		err = d.root.Remove(key)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fileError("delete", key, err)
	}
	d.forget(key, etagOf(info))
	d.quota.add(-info.Size())
	return nil
}

func (d *directory) list(ctx context.Context, prefix, after string, limit int) ([]host.BlobInfo, error) {
	var found []host.BlobInfo
	err := fs.WalkDir(d.root.FS(), ".", func(p string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return host.Errorf(host.Cancelled, "blob: %v", context.Cause(ctx))
		}
		if err == nil && e.IsDir() && strings.HasPrefix(p, reserved) {
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
	return host.BlobInfo{Key: key, ContentType: contentType(key), Size: info.Size(), Modified: info.ModTime(), ETag: etagOf(info)}
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
		return notFound(key)
	}
	var p *fs.PathError // its path would name the host's folders
	if errors.As(err, &p) {
		err = p.Err
	}
	return host.Errorf(host.Unavailable, "blob: %s %q: %v", verb, key, err)
}
