package blob

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pelton-run/pelton/host"
)

// What is said of a blob comes back with it, and goes with it.
func TestDescription(t *testing.T) {
	each(t, func(t *testing.T, open func(bool) *Store) {
		s, ctx := open(true), t.Context()
		want := map[string]string{"source": "camera 7", "checked-by": "x"}
		etag, err := s.Put(ctx, &host.BlobPut{Key: "a/b.webp", ContentType: "text/x-odd", Metadata: sorted(want), Data: []byte("abc")})
		if err != nil || etag == "" {
			t.Fatalf("put = %q, %v", etag, err)
		}
		info, err := s.Stat(ctx, "a/b.webp")
		if err != nil {
			t.Fatal(err)
		}
		b, err := open(false).Get(ctx, "a/b.webp", host.Range{}, 3)
		if err != nil {
			t.Fatal(err)
		}
		for what, got := range map[string]host.BlobInfo{"stat": *info, "get": b.BlobInfo} {
			if got.Key != "a/b.webp" || got.ContentType != "text/x-odd" || got.Size != 3 || got.ETag != etag || !maps.Equal(mapped(got.Metadata), want) || got.Modified.IsZero() {
				t.Errorf("%s = %+v", what, got)
			}
		}
		if list, err := s.List(ctx, "", "", 0); err != nil || len(list) != 1 || list[0].ETag != etag {
			t.Errorf("list = %+v, %v; want the blob alone with its ETag", list, err)
		}
		if err := put(ctx, s, "a/b.webp", "", "abc"); err != nil {
			t.Fatal(err)
		}
		info, err = s.Stat(ctx, "a/b.webp")
		_, merges := s.backend.(*objects) // the S3 service of the tests adds to the metadata of before, as S3 does not
		if err != nil || info.ContentType != "image/webp" || len(info.Metadata) != 0 && !merges {
			t.Errorf("stat after another put = %+v, %v", info, err)
		}
		if _, err := s.Stat(ctx, "nothing"); host.ErrnoOf(err) != host.NotFound {
			t.Errorf("stat of nothing = %v, want not found", err)
		}
	})
}

// Names and values that not every kind of store keeps are refused by all.
func TestBadDescription(t *testing.T) {
	many := make([][2]string, 100)
	for i := range many {
		many[i] = [2]string{fmt.Sprintf("name-%d", i), strings.Repeat("x", 30)}
	}
	bad := map[string]*host.BlobPut{
		"upper case":       {Metadata: [][2]string{{"Name", "x"}}},
		"no name":          {Metadata: [][2]string{{"", "x"}}},
		"twice":            {Metadata: [][2]string{{"a", "x"}, {"a", "y"}}},
		"a line break":     {Metadata: [][2]string{{"a", "x\r\nX-Amz-Acl: public-read"}}},
		"not ASCII":        {Metadata: [][2]string{{"a", "ä"}}},
		"spaces around":    {Metadata: [][2]string{{"a", " x"}}},
		"too much":         {Metadata: many},
		"an odd type":      {ContentType: "text/html\r\nX: y"},
		"a long type":      {ContentType: strings.Repeat("x", MaxContentType+1)},
		"an odd condition": {If: "a\nb"},
	}
	each(t, func(t *testing.T, open func(bool) *Store) {
		s := open(true)
		for what, p := range bad {
			p := *p
			p.Key = "key"
			if _, err := s.Put(t.Context(), &p); host.ErrnoOf(err) != host.Invalid && host.ErrnoOf(err) != host.TooLarge {
				t.Errorf("%s = %v, want it refused", what, err)
			}
		}
		if list, err := s.List(t.Context(), "", "", 0); err != nil || len(list) != 0 {
			t.Errorf("something was stored: %v, %v", list, err)
		}
	})
}

func TestConditions(t *testing.T) {
	each(t, func(t *testing.T, open func(bool) *Store) {
		s, ctx := open(true), t.Context()
		try := func(condition, data string) (string, error) {
			return s.Put(ctx, &host.BlobPut{Key: "d/a", If: condition, Data: []byte(data)})
		}
		if _, err := try("no-such-etag", "x"); host.ErrnoOf(err) != host.Conflict {
			t.Errorf("replacing nothing = %v, want a conflict", err)
		}
		first, err := try(host.IfNew, "one")
		if err != nil {
			t.Fatalf("create: %v", err)
		}
		if _, err := try(host.IfNew, "other"); host.ErrnoOf(err) != host.Conflict {
			t.Errorf("create again = %v, want a conflict", err)
		}
		second, err := try(first, "two")
		if err != nil || second == first {
			t.Fatalf("replace = %q, %v; want another ETag than %q", second, err, first)
		}
		if _, err := try(first, "other"); host.ErrnoOf(err) != host.Conflict {
			t.Errorf("replace what was replaced = %v, want a conflict", err)
		}
		if b, err := get(ctx, s, "d/a", 10); err != nil || string(b.Data) != "two" {
			t.Errorf("get = %+v, %v; want two", b, err)
		}
		if err := s.Delete(ctx, "d/a"); err != nil {
			t.Fatal(err)
		}
		if _, err := try(second, "other"); host.ErrnoOf(err) != host.Conflict {
			t.Errorf("replace what was deleted = %v, want a conflict", err)
		}
		large := strings.Repeat("large", 1<<16) // of several parts
		if _, err := try(host.IfNew, large); err != nil {
			t.Errorf("create what was deleted = %v", err)
		}
		if b, err := get(ctx, s, "d/a", 1<<20); err != nil || string(b.Data) != large {
			t.Errorf("a large one comes back as another: %v", err)
		}
		if _, err := try(host.IfNew, ""); host.ErrnoOf(err) != host.Conflict {
			t.Errorf("create again = %v, want a conflict", err)
		}
	})
}

// Of writers that go by what they have read none loses what another has written. The
// S3 service of the tests looks at conditions before it takes its lock, and is not
// asked.
func TestConditionsInParallel(t *testing.T) {
	kinds := places(t)
	for _, kind := range []string{"directory", "bucket"} {
		t.Run(kind, func(t *testing.T) { appendInParallel(t, kinds[kind]) })
	}
}

// appendInParallel has several writers append to one blob, each with a store of its
// own, as functions and hosts have.
func appendInParallel(t *testing.T, open func(bool) *Store) {
	const writers, rounds = 4, 5
	if err := put(t.Context(), open(true), "list", "", ""); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for w := range writers {
		s := open(true)
		group.Go(func() {
			for i := 0; i < rounds; {
				b, err := get(t.Context(), s, "list", 1000)
				if err == nil {
					_, err = s.Put(t.Context(), &host.BlobPut{Key: "list", If: b.ETag, Data: fmt.Appendf(b.Data, "%d.%d ", w, i)})
				}
				switch {
				case err == nil:
					i++
				case host.ErrnoOf(err) != host.Conflict && host.ErrnoOf(err) != host.Unavailable: // it was put anew meanwhile
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b, err := get(t.Context(), open(true), "list", 1000)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(b.Data)); len(got) != writers*rounds {
		t.Errorf("%d entries are there, want %d: %s", len(got), writers*rounds, b.Data)
	}
}

func TestRanges(t *testing.T) {
	each(t, func(t *testing.T, open func(bool) *Store) {
		s, ctx := open(true), t.Context()
		for key, data := range map[string]string{"digits": "0123456789", "empty": ""} {
			if err := put(ctx, s, key, "", data); err != nil {
				t.Fatal(err)
			}
		}
		for _, tt := range []struct {
			key            string
			offset, length int64
			limit          int64
			want           string
			errno          host.Errno
		}{
			{"digits", 0, 0, 10, "0123456789", 0},
			{"digits", 0, 3, 3, "012", 0},
			{"digits", 3, 4, 4, "3456", 0},
			{"digits", 3, 0, 7, "3456789", 0},
			{"digits", 9, 100, 1, "9", 0},
			{"digits", 10, 0, 1, "", 0},
			{"digits", 10, 5, 1, "", 0},
			{"digits", 11, 0, 1, "", host.Invalid},
			{"digits", -1, 0, 10, "", host.Invalid},
			{"digits", 0, -1, 10, "", host.Invalid},
			{"digits", 1, 1<<63 - 1, 10, "123456789", 0},
			{"digits", 1<<63 - 1, 5, 10, "", host.Invalid},
			{"digits", 1 << 62, 0, 10, "", host.Invalid},
			{"digits", 0, 0, 9, "", host.TooLarge},
			{"digits", 2, 0, 7, "", host.TooLarge},
			{"empty", 0, 0, 0, "", 0},
			{"empty", 0, 1, 0, "", 0},
			{"empty", 1, 1, 0, "", host.Invalid},
			{"nothing", 0, 1, 1, "", host.NotFound},
		} {
			b, err := s.Get(ctx, tt.key, host.Range{Offset: tt.offset, Length: tt.length}, tt.limit)
			if tt.errno != 0 {
				if host.ErrnoOf(err) != tt.errno {
					t.Errorf("%d bytes of %s from %d = %v, want errno %d", tt.length, tt.key, tt.offset, err, tt.errno)
				}
				continue
			}
			if err != nil || string(b.Data) != tt.want || tt.key == "digits" && b.Size != 10 {
				t.Errorf("%d bytes of %s from %d = %+v, %v; want %q", tt.length, tt.key, tt.offset, b, err, tt.want)
			}
		}
	})
}

// A directory takes no more than its quota, counts what others wrote, and has room
// again for what was deleted.
func TestQuota(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "others"), make([]byte, 40), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir, true, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, fifty := t.Context(), strings.Repeat("x", 50)
	if err := put(ctx, s, "a", "", fifty); err != nil {
		t.Fatal(err)
	}
	if err := put(ctx, s, "b", "", fifty); host.ErrnoOf(err) != host.TooLarge || !strings.Contains(err.Error(), "90 of the store's quota of 100") {
		t.Errorf("above the quota = %v, want it refused with the figures", err)
	}
	if _, err := s.Stat(ctx, "b"); host.ErrnoOf(err) != host.NotFound {
		t.Errorf("stat = %v, want nothing to be there", err)
	}
	if err := s.Delete(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := put(ctx, s, "b", "", fifty); err != nil {
		t.Errorf("after a delete: %v", err)
	}
	if err := put(ctx, s, "c", "", strings.Repeat("x", 10)); err != nil {
		t.Errorf("exactly the quota: %v", err)
	}
}

// A file that another program put in the place of a blob has none of what was said
// of that one.
func TestReplacedByOthers(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, true, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	etag, err := s.Put(context.Background(), &host.BlobPut{Key: "a.txt", ContentType: "text/x-odd", Metadata: [][2]string{{"a", "1"}}, Data: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("others"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := s.Stat(t.Context(), "a.txt")
	if err != nil || info.ETag == etag || len(info.Metadata) > 0 || !strings.HasPrefix(info.ContentType, "text/plain") {
		t.Errorf("stat = %+v, %v", info, err)
	}
}
