package pelton

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/pelton-run/pelton/"

// ours is what each folder may import of this module, by prefix; a folder's own
// packages below it are told apart by the longest match. The table is that of
// the design: imports run one way, downwards.
var ours = map[string][]string{
	"manifests":       {},
	"host":            {"manifests"},
	"host/*":          {"host", "manifests"},
	"runtime":         {"host", "manifests"},
	"runtime/wasm":    {},
	"runtime/engine":  {"host", "manifests", "runtime/wasm"},
	"runtime/trigger": {"runtime", "host", "manifests"},
	"runtime/status":  {"runtime", "runtime/trigger", "host", "manifests"},
	"runtime/deploy":  {"runtime", "host", "manifests"},
	"runtime/broker":  {"manifests"},
	"cmd":             {"*"},
	"bench":           {"*"},
}

// only is who may import a library.
var only = map[string][]string{
	"github.com/tetratelabs/wazero": {"runtime/engine", "bench"},
	"github.com/nats-io/nats.go":    {"runtime/trigger", "runtime/deploy", "runtime/status", "runtime/broker", "host/kv", "host/publish", "host/blob", "cmd", "bench"},
	"github.com/nats-io/nats-server": {
		"runtime/broker", "bench"},
	"github.com/nats-io/jsm.go": {"cmd"},
	"github.com/minio/minio-go": {"host/blob"},
	"modernc.org/sqlite":        {"host/sqlite", "cmd/pelton/demo", "bench"},
	"github.com/goccy":          {"manifests"},
	"github.com/spf13":          {"cmd"},
	"github.com/deepteams":      {"host/image", "cmd/pelton/demo", "bench"},
	"github.com/rs/zerolog":     {"runtime", "runtime/trigger", "runtime/broker", "cmd", "bench"},
}

func TestImports(t *testing.T) {
	files := 0
	err := filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && (path == "bin" || path == "testdata" || strings.HasPrefix(path, ".") && path != ".") {
			return fs.SkipDir
		}
		if e.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files++
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if reason := forbidden(filepath.ToSlash(filepath.Dir(path)), imported); reason != "" {
				t.Errorf("%s imports %s: %s", path, imported, reason)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 50 {
		t.Errorf("%d files were looked at; the walk is broken", files)
	}
}

// forbidden says why a folder may not import a package, "" if it may.
func forbidden(folder, imported string) string {
	top, _, _ := strings.Cut(folder, "/")
	if top == "sdk" || top == "functions" {
		return forbiddenToGuests(top, imported)
	}
	if inner, ok := strings.CutPrefix(imported, module); ok {
		for _, allowed := range ours[ruleOf(folder)] {
			if allowed == "*" || allowed == inner {
				return ""
			}
		}
		return "imports run downwards; see the table in imports_test.go"
	}
	for library, allowed := range only {
		if !strings.HasPrefix(imported, library) {
			continue
		}
		for _, a := range allowed {
			if folder == a || strings.HasPrefix(folder, a+"/") && a != "runtime" {
				return ""
			}
		}
		return "this library belongs to " + strings.Join(allowed, ", ")
	}
	return ""
}

func forbiddenToGuests(top, imported string) string {
	inner, own := strings.CutPrefix(imported, module)
	switch {
	case top == "sdk" && own && !strings.HasPrefix(inner, "sdk"):
		return "the SDK stands alone"
	case top == "sdk" && !own && strings.Contains(imported, "."):
		return "the SDK has no dependencies"
	case top == "functions" && own && !strings.HasPrefix(inner, "sdk") && !strings.HasPrefix(inner, "functions"):
		return "a function knows the SDK alone"
	}
	return ""
}

// ruleOf returns the row of the table that a folder falls under.
func ruleOf(folder string) string {
	if _, ok := ours[folder]; ok {
		return folder
	}
	top, _, _ := strings.Cut(folder, "/")
	if top == "host" {
		return "host/*"
	}
	return top
}

// The table itself is under test: what it is there to forbid, it forbids.
func TestForbidden(t *testing.T) {
	for _, tt := range []struct{ folder, imported string }{
		{"host", module + "runtime"}, {"host/sqlite", module + "runtime/engine"}, {"host", "github.com/tetratelabs/wazero"},
		{"runtime", "github.com/nats-io/nats.go"}, {"runtime", module + "runtime/engine"}, {"manifests", module + "host"},
		{"sdk", module + "host"}, {"sdk", "github.com/rs/zerolog"}, {"functions/index", module + "manifests"}, {"host/http", "github.com/nats-io/nats.go"},
	} {
		if forbidden(tt.folder, tt.imported) == "" {
			t.Errorf("%s may import %s", tt.folder, tt.imported)
		}
	}
}
