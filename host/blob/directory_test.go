package blob

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pelton-run/pelton/host"
)

func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ctx := context.Background()
	for _, key := range []string{"a.webp", "deep/er/b.xml", "ä ö", "deep/c"} {
		if err := d.Put(ctx, key, "", []byte(key)); err != nil {
			t.Fatalf("put %s: %v", key, err)
		}
		b, err := d.Get(ctx, key, 100)
		if err != nil || string(b.Data) != key || b.Size != int64(len(key)) {
			t.Errorf("get %s = %v, %v", key, b, err)
		}
	}
	if err := d.Put(ctx, "a.webp", "", []byte("new")); err != nil {
		t.Fatal(err)
	}
	if b, err := d.Get(ctx, "a.webp", 100); err != nil || string(b.Data) != "new" || b.ContentType != "image/webp" {
		t.Errorf("get after put = %v, %v", b, err)
	}
	if _, err := d.Get(ctx, "deep/er/b.xml", 3); host.ErrnoOf(err) != host.TooLarge {
		t.Errorf("get above the limit = %v, want too large", err)
	}
	list, err := d.List(ctx, "deep/", "", 0)
	if err != nil || len(list) != 2 || list[0].Key != "deep/c" || list[1].ContentType != "application/xml" {
		t.Errorf("list = %v, %v; want deep/c and deep/er/b.xml", list, err)
	}
	if list, err := d.List(ctx, "", "deep/c", 1); err != nil || len(list) != 1 || list[0].Key != "deep/er/b.xml" {
		t.Errorf("list after deep/c = %v, %v", list, err)
	}
	for range 2 {
		if err := d.Delete(ctx, "a.webp"); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	if _, err := d.Get(ctx, "a.webp", 100); host.ErrnoOf(err) != host.NotFound {
		t.Errorf("get after delete = %v, want not found", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, temporary, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// What a killed host left is swept, what is being written is not.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, temporary), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{"old": 2 * staleAfter, "new": 0} {
		path := filepath.Join(dir, temporary, name)
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	d, err := Open(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if left, _ := filepath.Glob(filepath.Join(dir, temporary, "*")); len(left) != 1 || filepath.Base(left[0]) != "new" {
		t.Errorf("left are %v, want new", left)
	}
	if list, err := d.List(t.Context(), "", "", 0); err != nil || len(list) != 0 {
		t.Errorf("list = %v, %v; want nothing", list, err)
	}
}

// SEC-6: no key leads out, and none is stored under another name.
func TestKeys(t *testing.T) {
	parent := t.TempDir()
	secret := filepath.Join(parent, "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := Open(filepath.Join(parent, "store"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	bad := []string{"..", "../secret", "a/../../secret", "/abs", "a\x00b", "", strings.Repeat("k", 1100), "a//b", "./a", "a/", `a\b`, "a\nb", "\xff", temporary, temporary + "/x", temporary + "-x"}
	for _, key := range bad {
		if err := d.Put(t.Context(), key, "", []byte("evil")); host.ErrnoOf(err) != host.Invalid {
			t.Errorf("put %q = %v, want invalid", key, err)
		}
		if _, err := d.Get(t.Context(), key, 100); host.ErrnoOf(err) != host.Invalid {
			t.Errorf("get %q = %v, want invalid", key, err)
		}
	}
	if err := os.Symlink(parent, filepath.Join(parent, "store", "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Get(t.Context(), "link/secret", 100); err == nil {
		t.Error("a symbolic link leads out of the store")
	}
	if list, err := d.List(t.Context(), "../", "", 0); err != nil || len(list) > 0 {
		t.Errorf("list ../ = %v, %v; want nothing", list, err)
	}
	if b, _ := os.ReadFile(secret); string(b) != "x" {
		t.Error("the file outside was written")
	}
}

func TestReadOnly(t *testing.T) {
	d, err := Open(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Put(t.Context(), "a", "", nil); host.ErrnoOf(err) != host.Denied {
		t.Errorf("put = %v, want denied", err)
	}
	if err := d.Delete(t.Context(), "a"); host.ErrnoOf(err) != host.Denied {
		t.Errorf("delete = %v, want denied", err)
	}
}

func FuzzCheckKey(f *testing.F) {
	f.Add("a/b.webp")
	f.Add("a/../b")
	f.Fuzz(func(t *testing.T, key string) {
		if CheckKey(key) == nil && (!filepath.IsLocal(key) || filepath.ToSlash(filepath.Clean(key)) != key) {
			t.Errorf("key %q passes", key)
		}
	})
}
