package blob

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path"

	"github.com/pelton-run/pelton/host"
)

// descriptions is the folder of what describes blobs in a directory beyond their
// files, and of the locks.
const descriptions = reserved + "meta"

// described is one such file. Its name holds the ETag, so that it comes and goes
// with the file it describes: for a blob that another program has replaced there is
// none.
type described struct {
	Key         string      `json:"key"` // for whoever looks at the file
	ContentType string      `json:"content_type,omitempty"`
	Metadata    [][2]string `json:"metadata,omitempty"`
}

func hashOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

func descriptionOf(key, etag string) string {
	hash := hashOf(key)
	return path.Join(descriptions, hash[:2], hash+"-"+etag+".json")
}

// remember writes what the file cannot say about a blob.
func (d *directory) remember(p *host.BlobPut, etag string) error {
	kind := p.ContentType
	if kind == contentType(p.Key) {
		kind = ""
	}
	if kind == "" && len(p.Metadata) == 0 {
		return nil
	}
	body, err := json.Marshal(described{p.Key, kind, p.Metadata})
	if err != nil {
		return err
	}
	name := descriptionOf(p.Key, etag)
	if err := d.root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	temp := path.Join(temporary, rand.Text())
	if err := d.write(temp, body); err != nil {
		return err
	}
	if err := d.root.Rename(temp, name); err != nil {
		return err
	}
	return d.syncFolder(path.Dir(name), p.Key)
}

// forget removes what described a blob that is gone. What stays is in nobody's way.
func (d *directory) forget(key, etag string) {
	if etag != "" {
		d.root.Remove(descriptionOf(key, etag))
	}
}

// describe describes a file, with what is remembered of it.
func (d *directory) describe(key string, info fs.FileInfo) host.BlobInfo {
	b := describe(key, info)
	body, err := d.root.ReadFile(descriptionOf(key, b.ETag))
	if err != nil {
		return b
	}
	var more described
	if json.Unmarshal(body, &more) == nil {
		b.Metadata = more.Metadata
		if more.ContentType != "" {
			b.ContentType = more.ContentType
		}
	}
	return b
}

// lock takes the lock of a key, which 256 groups of keys share: other functions, and
// other hosts on the same disk, may write to the directory. Locks are held for as
// long as a rename takes.
func (d *directory) lock(key string) (unlock func(), err error) {
	f, err := d.root.OpenFile(path.Join(descriptions, "lock-"+hashOf(key)[:2]), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil // which ends the lock
}
