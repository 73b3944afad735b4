package wasm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// bomb is a module header and one section.
func bomb(id byte, payload ...byte) []byte {
	out := append([]byte("\x00asm\x01\x00\x00\x00"), id)
	return append(appendU32(out, uint32(len(payload))), payload...)
}

// What a few bytes claim costs nothing.
func TestBombs(t *testing.T) {
	many := []byte{0xFF, 0xFF, 0xFF, 0xFF, 0x0F}
	withFunction := func(body ...byte) []byte {
		m := bomb(secType, 1, 0x60, 0, 0)
		m = append(m, bomb(secFunction, 1, 0)[8:]...)
		code := append([]byte{1}, appendU32(nil, uint32(len(body)))...)
		return append(m, bomb(secCode, append(code, body...)...)[8:]...)
	}
	tests := map[string]struct {
		module []byte
		want   error
	}{
		"empty":           {nil, ErrMalformed},
		"text":            {[]byte("hello"), ErrMalformed},
		"header only":     {[]byte("\x00asm\x01\x00\x00\x00"), nil},
		"type count":      {bomb(secType, many...), ErrMalformed},
		"import count":    {bomb(secImport, many...), ErrMalformed},
		"function count":  {bomb(secFunction, many...), ErrMalformed},
		"export count":    {bomb(secExport, many...), ErrMalformed},
		"element count":   {bomb(secElement, many...), ErrMalformed},
		"code count":      {bomb(secCode, many...), ErrMalformed},
		"data count":      {bomb(secData, many...), ErrMalformed},
		"section size":    {append([]byte("\x00asm\x01\x00\x00\x00\x01"), many...), ErrMalformed},
		"section twice":   {append(bomb(secType, 0), bomb(secType, 0)[8:]...), ErrMalformed},
		"out of order":    {append(bomb(secExport, 0), bomb(secType, 0)[8:]...), ErrMalformed},
		"unknown section": {bomb(77), ErrMalformed},
		"locals":          {withFunction(1, 0x80, 0xC2, 0xD7, 0x2F, 0x7F, opEnd), ErrTooBig}, // 100,000,000
		"tail call":       {withFunction(0, 0x12, 0, opEnd), ErrUnsupported},
		"atomics":         {withFunction(0, 0xFE, 0, opEnd), ErrUnsupported},
		"exceptions":      {bomb(13, 0), ErrUnsupported},
		"gc type":         {bomb(secType, 1, 0x5F, 0), ErrUnsupported},
		"no end":          {withFunction(0, opBlock, 0x40), ErrMalformed},
		"after the end":   {withFunction(0, opEnd, opEnd), ErrMalformed},
		"a function":      {withFunction(0, opLoop, 0x40, opEnd, opEnd), nil},
	}
	for name, tt := range tests {
		if _, err := Meter(tt.module); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

// A module that is cut off anywhere is refused, or is whole by chance; it never
// makes the reader stumble.
func TestTruncated(t *testing.T) {
	b, err := os.ReadFile("../../bin/testers/nowork.wasm")
	if err != nil {
		t.Fatalf("%v; run make testers", err)
	}
	step := 1
	for n := 0; n < len(b); n += step {
		if n > 4096 {
			step = len(b) / 200
		}
		if _, err := Meter(b[:n]); err == nil && n != 8 {
			sectionEnds := false
			if list, err := sections(b[:n]); err == nil {
				last := list[len(list)-1]
				sectionEnds = last.at+len(last.payload) == n
			}
			if !sectionEnds {
				t.Errorf("the first %d bytes pass", n)
			}
		}
	}
}

// testdata of the official suite, as wazero's module carries it.
func suite(t testing.TB) []string {
	t.Helper()
	out, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := ""
	for line := range strings.Lines(string(out)) {
		if _, v, ok := strings.Cut(line, "github.com/tetratelabs/wazero "); ok {
			version = strings.Fields(v)[0]
		}
	}
	cache := os.Getenv("GOMODCACHE")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(home, "go", "pkg", "mod")
		if p := os.Getenv("GOPATH"); p != "" {
			cache = filepath.Join(filepath.SplitList(p)[0], "pkg", "mod")
		}
	}
	pattern := filepath.Join(cache, "github.com", "tetratelabs", fmt.Sprintf("wazero@%s", version), "internal", "integration_test", "spectest", "v2", "testdata", "*.wasm")
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) < 100 {
		t.Fatalf("%d modules of the suite at %s, %v", len(files), pattern, err)
	}
	return files
}

func FuzzMeter(f *testing.F) {
	f.Add(bomb(secType, 1, 0x60, 0, 0))
	for _, file := range suite(f)[:200] {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if len(b) < 4096 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, module []byte) {
		out, err := Meter(module)
		if err == nil && len(out) > 4*len(module)+10_000*(1+len(module)/100) {
			t.Errorf("%d bytes became %d", len(module), len(out))
		}
	})
}
