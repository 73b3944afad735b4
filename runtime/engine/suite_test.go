package engine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/pelton-run/pelton/runtime/wasm"
)

// Every module of the official suite that wazero takes is taken by the rewrite,
// and what comes out is valid; what is refused is not valid to wazero either.
func TestSuite(t *testing.T) {
	files := suiteFiles(t)
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer r.Close(ctx)
	taken, refused := 0, 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		plain, plainErr := r.CompileModule(ctx, b)
		if plainErr == nil {
			plain.Close(ctx)
		}
		metered, err := wasm.Meter(b)
		if err != nil {
			refused++
			if plainErr == nil {
				t.Errorf("%s is refused: %v", filepath.Base(file), err)
			}
			continue
		}
		m, err := r.CompileModule(ctx, metered)
		if (err == nil) != (plainErr == nil) {
			t.Errorf("%s: metered %v, plain %v", filepath.Base(file), err, plainErr)
		}
		if err == nil {
			taken++
			m.Close(ctx)
		}
	}
	t.Logf("%d modules: %d rewritten and valid, %d refused", len(files), taken, refused)
}

// suiteFiles finds the suite in the module cache, where wazero carries it.
func suiteFiles(t *testing.T) []string {
	t.Helper()
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := ""
	for line := range strings.Lines(string(mod)) {
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
	pattern := filepath.Join(cache, "github.com", "tetratelabs", "wazero@"+version, "internal", "integration_test", "spectest", "v2", "testdata", "*.wasm")
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) < 100 {
		t.Fatalf("%d modules of the suite at %s, %v", len(files), pattern, err)
	}
	return files
}
