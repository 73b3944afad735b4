package blob

import (
	"context"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/pelton-run/pelton/host"
)

// recountAfter is how old a count of a directory's bytes may be: others write there
// too.
const recountAfter = 10 * time.Minute

// quota bounds the bytes of a directory's blobs.
type quota struct {
	most int64 // 0 for no bound

	mu      sync.Mutex
	used    int64
	counted time.Time
}

// admit refuses more bytes than there is room for. A blob that is replaced counts
// until the new one is there: for a while there are both.
func (q *quota) admit(ctx context.Context, d *directory, size int64) error {
	if q.most == 0 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	// What looks full may not be so any more.
	if age := time.Since(q.counted); age > recountAfter || q.used+size > q.most && age > time.Second {
		used, err := d.count(ctx)
		if err != nil {
			return fileError("count", "", err)
		}
		q.used, q.counted = used, time.Now()
	}
	if q.used+size > q.most {
		return host.Errorf(host.TooLarge, "blob: %d bytes more do not fit: %d of the store's quota of %d are used", size, q.used, q.most)
	}
	return nil
}

func (q *quota) add(size int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used += size
}

// count adds up the bytes of all blobs.
func (d *directory) count(ctx context.Context) (sum int64, err error) {
	err = fs.WalkDir(d.root.FS(), ".", func(p string, e fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return cancelled(ctx)
		case err != nil:
			return err
		case e.IsDir() && strings.HasPrefix(p, reserved):
			return fs.SkipDir
		case e.Type().IsRegular():
			if info, err := e.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return sum, err
}
