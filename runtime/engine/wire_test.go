package engine

import (
	"reflect"
	"strings"
	"testing"

	"github.com/pelton-run/pelton/host"
)

func TestFrames(t *testing.T) {
	f := frame{}.str("täxt").u32(7).u64(1 << 40).blob([]byte{0, 1}).pairs([][2]string{{"a", "b"}})
	r := reader{b: f}
	if s, n, u, b, p := r.str(), r.u32(), r.u64(), r.blob(), r.pairs(); s != "täxt" || n != 7 || u != 1<<40 || len(b) != 2 || p[0][1] != "b" || !r.ok() {
		t.Errorf("read back %q %d %d %v %v, ok %v", s, n, u, b, p, r.ok())
	}
	for _, long := range []int{0, 10, maxCopied} { // arguments are copied as a whole, or one by one
		values := []any{nil, int64(-5), "täxt", 2.5, "", []byte("y"), strings.Repeat("x", long), "z"}
		f = frame{}.u32(uint32(len(values)))
		for _, v := range values {
			f = f.value(v)
		}
		r = reader{b: f}
		if got := r.values(maxArguments); !reflect.DeepEqual(got, values) || !r.ok() {
			t.Errorf("values read back as %v", got)
		}
		r = reader{b: append(f[:len(f)-1], 0xff)}
		if r.values(maxArguments); r.ok() {
			t.Error("a text that is not UTF-8 is taken")
		}
	}
}

// A frame can claim anything; it costs no more than it holds.
func FuzzReader(f *testing.F) {
	f.Add([]byte(frame{}.str("db").str("SELECT ?").u32(1).value(int64(1))))
	f.Add([]byte{0xFF, 0xFF, 0xFF, 0xFF})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, read := range []func(r *reader) int{
			func(r *reader) int { r.str(); r.str(); return len(r.values(maxArguments)) },
			func(r *reader) int { return len(r.pairs()) },
			func(r *reader) int { return len(r.targets()) },
			func(r *reader) int { return len(r.headers()) + len(r.blob()) },
		} {
			r := reader{b: b}
			if n := read(&r); n > len(b) {
				t.Errorf("%d elements out of %d bytes", n, len(b))
			}
		}
	})
}

func TestLines(t *testing.T) {
	var got []string
	l := &lines{to: func(s string) { got = append(got, s) }}
	for _, s := range []string{"one\ntw", "o\n\n", "panic: no\nmore\n", "rest"} {
		l.Write([]byte(s))
	}
	if first := l.first(); first != "panic: no" {
		t.Errorf("first = %q, want the panic", first)
	}
	if s := strings.Join(got, "|"); s != "one|two|panic: no|more|rest" {
		t.Errorf("lines = %s", s)
	}
	got = nil
	l.Write([]byte(strings.Repeat("x", 2*maxLine+10) + "\n"))
	if len(got) != 3 || len(got[0]) != maxLine {
		t.Errorf("a long line became %d lines", len(got))
	}
}

func TestErrnosAreTheABI(t *testing.T) {
	for errno, n := range map[host.Errno]int32{host.Denied: 1, host.NotFound: 2, host.Conflict: 3, host.TooLarge: 4, host.Cancelled: 5, host.Invalid: 6,
		host.Unavailable: 7, host.Limit: 8, host.Again: 9, host.Failed: 10, host.Unsupported: 11} {
		if int32(errno) != n || errno.Error() == "" {
			t.Errorf("%v = %d, want %d", errno, errno, n)
		}
	}
}
