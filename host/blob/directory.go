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
// that other programs can serve it. The content type follows the key's extension.
// No key and no symbolic link leads out of it.
type directory struct{ root *os.Root }

// Open opens a store in a directory, and creates that if need be. One that is not
// writable refuses Put and Delete.
func Open(dir string, writable bool) (*Store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create blob directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open blob directory: %w", err)
	}
	d := &directory{root: root}
	if writable {
		if err := d.sweep(); err != nil {
			return nil, errors.Join(fmt.Errorf("sweep blob directory: %w", err), root.Close())
		}
	}
	return &Store{backend: d, writable: writable}, nil
}

// sweep makes the folder for files that are being written, and removes what is
// stale there.
func (d *directory) sweep() error {
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

func (d *directory) close() error { return d.root.Close() }

// put stores a blob whole: readers see the old one or the new one, and it is
// on the disk when put returns.
func (d *directory) put(_ context.Context, key, _ string, data []byte) error {
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

func (d *directory) get(_ context.Context, key string, limit int64) (*host.Blob, error) {
	info, err := d.root.Stat(key)
	if err != nil {
		return nil, fileError("get", key, err)
	}
	if !info.Mode().IsRegular() {
		return nil, notFound(key)
	}
	if info.Size() > limit {
		return nil, tooLarge(key, info.Size(), limit)
	}
	data, err := d.root.ReadFile(key)
	if err != nil {
		return nil, fileError("get", key, err)
	}
	b := &host.Blob{BlobInfo: describe(key, info), Data: data}
	b.Size = int64(len(data))
	return b, nil
}

func (d *directory) remove(_ context.Context, key string) error {
	if err := d.root.Remove(key); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fileError("delete", key, err)
	}
	return nil
}

func (d *directory) list(ctx context.Context, prefix, after string, limit int) ([]host.BlobInfo, error) {
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
		return notFound(key)
	}
	var p *fs.PathError // its path would name the host's folders
	if errors.As(err, &p) {
		err = p.Err
	}
	return host.Errorf(host.Unavailable, "blob: %s %q: %v", verb, key, err)
}
