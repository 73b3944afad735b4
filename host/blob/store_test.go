package blob

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/runtime/broker"
)

// places opens a store in each kind of place. Every call of one opens the same.
func places(t *testing.T) map[string]func(writable bool) *Store {
	t.Helper()
	dir := t.TempDir()
	_, js := connect(t)
	if _, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "B"}); err != nil {
		t.Fatal(err)
	}
	service := serveS3(t, "pelton")
	open := func(f func(writable bool) (*Store, error)) func(bool) *Store {
		return func(writable bool) *Store {
			s, err := f(writable)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		}
	}
	return map[string]func(bool) *Store{
		"directory": open(func(w bool) (*Store, error) { return Open(dir, w, 0) }),
		"bucket":    open(func(w bool) (*Store, error) { return OpenBucket(t.Context(), js, "B", w) }),
		"s3": open(func(w bool) (*Store, error) {
			return OpenS3(S3{Endpoint: service, Bucket: "pelton", Prefix: "site/", AccessKey: "k", SecretKey: "s"}, w)
		}),
	}
}

func connect(t *testing.T) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	s, err := broker.Start("127.0.0.1:0", t.TempDir(), broker.DefaultSync, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close(); s.Close() })
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

func serveS3(t *testing.T, bucket string) (endpoint string) {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket(bucket); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(s.Close)
	return s.URL
}

// put stores a blob with nothing said about it.
func put(ctx context.Context, s *Store, key, kind, data string) error {
	_, err := s.Put(ctx, &host.BlobPut{Key: key, ContentType: kind, Data: []byte(data)})
	return err
}

// get reads a whole one.
func get(ctx context.Context, s *Store, key string, limit int64) (*host.Blob, error) {
	return s.Get(ctx, key, host.Range{}, limit)
}

// each runs a test in each kind of place.
func each(t *testing.T, f func(t *testing.T, open func(writable bool) *Store)) {
	for name, open := range places(t) {
		t.Run(name, func(t *testing.T) { f(t, open) })
	}
}

func TestStore(t *testing.T) {
	each(t, func(t *testing.T, open func(bool) *Store) {
		s, ctx := open(true), t.Context()
		for _, key := range []string{"a.webp", "deep/er/b.xml", "ä ö", "deep/c", "q?x#y%2e%2e", "plus+and&"} {
			if err := put(ctx, s, key, "", key); err != nil {
				t.Fatalf("put %s: %v", key, err)
			}
			b, err := get(ctx, s, key, 100)
			if err != nil || string(b.Data) != key || b.Size != int64(len(key)) || b.Key != key {
				t.Errorf("get %s = %+v, %v", key, b, err)
			}
		}
		if err := put(ctx, s, "a.webp", "image/webp", "new"); err != nil {
			t.Fatal(err)
		}
		if b, err := get(ctx, s, "a.webp", 100); err != nil || string(b.Data) != "new" || b.ContentType != "image/webp" || b.Modified.IsZero() {
			t.Errorf("get after put = %+v, %v", b, err)
		}
		if _, err := get(ctx, s, "deep/er/b.xml", 3); host.ErrnoOf(err) != host.TooLarge {
			t.Errorf("get above the limit = %v, want too large", err)
		}
		for range 2 {
			if err := s.Delete(ctx, "a.webp"); err != nil {
				t.Errorf("delete: %v", err)
			}
		}
		if _, err := get(ctx, s, "a.webp", 100); host.ErrnoOf(err) != host.NotFound {
			t.Errorf("get after delete = %v, want not found", err)
		}
		if err := put(ctx, s, "empty", "", ""); err != nil {
			t.Fatal(err)
		}
		if b, err := get(ctx, s, "empty", 0); err != nil || len(b.Data) != 0 {
			t.Errorf("get of nothing = %+v, %v", b, err)
		}
		large := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
		if err := put(ctx, s, "large", "", string(large)); err != nil {
			t.Fatal(err)
		}
		if b, err := get(ctx, s, "large", 1<<20); err != nil || !bytes.Equal(b.Data, large) {
			t.Errorf("a megabyte comes back as another: %v", err)
		}
	})
}

func TestList(t *testing.T) {
	each(t, func(t *testing.T, open func(bool) *Store) {
		s, ctx := open(true), t.Context()
		if list, err := s.List(ctx, "", "", 0); err != nil || len(list) != 0 {
			t.Errorf("list of nothing = %v, %v", list, err)
		}
		var want []string
		for i := range 25 {
			key := fmt.Sprintf("d/%02d.xml", i)
			want = append(want, key)
			if err := put(ctx, s, key, "", key); err != nil {
				t.Fatal(err)
			}
		}
		if err := put(ctx, s, "other", "", "x"); err != nil {
			t.Fatal(err)
		}
		var got []string
		for after := ""; ; { // by pages
			page, err := s.List(ctx, "d/", after, 10)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) > 10 {
				t.Fatalf("a page has %d, want at most 10", len(page))
			}
			if len(page) == 0 {
				break
			}
			for _, b := range page {
				if b.Size != int64(len(b.Key)) || b.ContentType != "application/xml" {
					t.Errorf("listed as %+v", b)
				}
				got = append(got, b.Key)
			}
			after = page[len(page)-1].Key
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// SEC-6: the same keys are refused everywhere, and none is stored under another
// name.
func TestKeys(t *testing.T) {
	bad := []string{"..", "../secret", "a/../../secret", "/abs", "a\x00b", "", strings.Repeat("k", 1100), "a//b", "./a", "a/", `a\b`, "a\nb", "\xff", temporary, temporary + "/x", temporary + "-x", strings.Repeat("k", MaxSegment+1)}
	each(t, func(t *testing.T, open func(bool) *Store) {
		s := open(true)
		for _, key := range bad {
			_, getErr := get(t.Context(), s, key, 100)
			for what, err := range map[string]error{"put": put(t.Context(), s, key, "", "evil"), "get": getErr, "delete": s.Delete(t.Context(), key)} {
				if host.ErrnoOf(err) != host.Invalid {
					t.Errorf("%s %q = %v, want invalid", what, key, err)
				}
			}
		}
		for _, prefix := range []string{"../", "..", "/", "\x00"} {
			if list, err := s.List(t.Context(), prefix, "", 0); err != nil || len(list) > 0 {
				t.Errorf("list %q = %v, %v; want nothing", prefix, list, err)
			}
		}
		if list, err := s.List(t.Context(), "", "", 0); err != nil || len(list) != 0 {
			t.Errorf("something was stored: %v, %v", list, err)
		}
	})
}

func TestReadOnly(t *testing.T) {
	each(t, func(t *testing.T, open func(bool) *Store) {
		if err := put(t.Context(), open(true), "a", "", "x"); err != nil {
			t.Fatal(err)
		}
		s := open(false)
		if err := put(t.Context(), s, "a", "", ""); host.ErrnoOf(err) != host.Denied {
			t.Errorf("put = %v, want denied", err)
		}
		if err := s.Delete(t.Context(), "a"); host.ErrnoOf(err) != host.Denied {
			t.Errorf("delete = %v, want denied", err)
		}
		if b, err := get(t.Context(), s, "a", 10); err != nil || string(b.Data) != "x" {
			t.Errorf("get = %+v, %v", b, err)
		}
	})
}

// An operation ends with its delivery.
func TestCancelled(t *testing.T) {
	each(t, func(t *testing.T, open func(bool) *Store) {
		s := open(true)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, getErr := get(ctx, s, "a", 10)
		_, listErr := s.List(ctx, "", "", 0)
		for what, err := range map[string]error{"put": put(ctx, s, "a", "", ""), "get": getErr, "delete": s.Delete(ctx, "a"), "list": listErr} {
			if host.ErrnoOf(err) != host.Cancelled {
				t.Errorf("%s = %v, want cancelled", what, err)
			}
		}
	})
}

// A link in a bucket may lead to another one: it is no blob.
func TestObjectLink(t *testing.T) {
	_, js := connect(t)
	other, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "OTHER"})
	if err != nil {
		t.Fatal(err)
	}
	info, err := other.PutString(t.Context(), "secret", "x")
	if err != nil {
		t.Fatal(err)
	}
	mine, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "MINE"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mine.AddLink(t.Context(), "link", info); err != nil {
		t.Fatal(err)
	}
	s, err := OpenBucket(t.Context(), js, "MINE", true)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := get(t.Context(), s, "link", 100); host.ErrnoOf(err) != host.NotFound {
		t.Errorf("get = %+v, %v; want not found", b, err)
	}
	if list, err := s.List(t.Context(), "", "", 0); err != nil || len(list) != 0 {
		t.Errorf("list = %v, %v", list, err)
	}
	if _, err := OpenBucket(t.Context(), js, "NOTHING", true); err == nil || !strings.Contains(err.Error(), "nats object add NOTHING") {
		t.Errorf("a bucket that is not there = %v, want what to do", err)
	}
}

// What an S3 service refuses is said without keys and signatures.
func TestS3Refusals(t *testing.T) {
	service := serveS3(t, "pelton")
	for what, at := range map[string]S3{
		"no bucket":  {Endpoint: service, Bucket: "nothing", AccessKey: "AKIASECRET", SecretKey: "verysecret"},
		"no service": {Endpoint: "http://127.0.0.1:1", Bucket: "pelton", AccessKey: "AKIASECRET", SecretKey: "verysecret"},
	} {
		s, err := OpenS3(at, true)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_, getErr := get(t.Context(), s, "a", 10)
		_, listErr := s.List(t.Context(), "", "", 0)
		for op, err := range map[string]error{"put": put(t.Context(), s, "a", "", "x"), "get": getErr, "list": listErr} {
			if host.ErrnoOf(err) != host.Unavailable || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "Signature") {
				t.Errorf("%s, %s = %v; want unavailable, without secrets", what, op, err)
			}
		}
	}
}
