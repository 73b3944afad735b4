package blob

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

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
	d, err := Open(dir, true, 0)
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

// SEC-6: no link leads out, and a list shows nothing of what is outside.
func TestLinks(t *testing.T) {
	parent := t.TempDir()
	secret := filepath.Join(parent, "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := Open(filepath.Join(parent, "store"), true, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := os.Symlink(parent, filepath.Join(parent, "store", "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := get(t.Context(), d, "link/secret", 100); err == nil {
		t.Error("a symbolic link leads out of the store")
	}
	if err := put(t.Context(), d, "link/secret", "", "evil"); err == nil {
		t.Error("a symbolic link is written through")
	}
	if list, err := d.List(t.Context(), "../", "", 0); err != nil || len(list) > 0 {
		t.Errorf("list ../ = %v, %v; want nothing", list, err)
	}
	if b, _ := os.ReadFile(secret); string(b) != "x" {
		t.Error("the file outside was written")
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
