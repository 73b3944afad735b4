package engine

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

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
		m, err := r.CompileModule(ctx, metered.Bytes)
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

// command is one line of the suite's scripts, as far as the comparison needs it.
type command struct {
	Type     string `json:"type"`
	Filename string `json:"filename"`
	Action   struct {
		Type   string `json:"type"`
		Module string `json:"module"`
		Field  string `json:"field"`
		Args   []struct {
			Type  string `json:"type"`
			Value any    `json:"value"`
		} `json:"args"`
	} `json:"action"`
}

// numbers returns an action's arguments, ok false when one is not a number.
func (c *command) numbers() (args []uint64, ok bool) {
	for _, a := range c.Action.Args {
		text, isText := a.Value.(string)
		switch a.Type {
		case "i32", "i64", "f32", "f64":
		default:
			return nil, false
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if strings.HasPrefix(text, "nan") {
			n, err = map[string]uint64{"f32": 0x7fc00000, "f64": 0x7ff8000000000000}[a.Type], nil
		}
		if !isText || err != nil {
			return nil, false
		}
		args = append(args, n)
	}
	return args, true
}

const funcref = api.ValueType(0x70)

// pair is a module of the suite, as it is and metered, each in its own store.
type pair struct{ plain, metered api.Module }

// compare runs one script and returns how many calls were compared.
func compare(t *testing.T, script string, plain, metered wazero.Runtime) int {
	t.Helper()
	b, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	var s struct{ Commands []command }
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	var now pair
	calls := 0
	for _, c := range s.Commands {
		switch c.Type {
		case "module":
			now = instantiateBoth(t, filepath.Join(filepath.Dir(script), c.Filename), plain, metered)
		case "assert_return", "assert_trap", "action":
			args, ok := c.numbers()
			if !ok || now.plain == nil || c.Action.Type != "invoke" || c.Action.Module != "" || now.plain.ExportedFunction(c.Action.Field) == nil {
				continue
			}
			if slices.Contains(now.plain.ExportedFunction(c.Action.Field).Definition().ResultTypes(), funcref) {
				continue // an address, another in each store
			}
			want, wantErr := now.plain.ExportedFunction(c.Action.Field).Call(ctx, args...)
			got, gotErr := now.metered.ExportedFunction(c.Action.Field).Call(ctx, args...)
			calls++
			if (wantErr == nil) != (gotErr == nil) || wantErr == nil && !slices.Equal(got, want) {
				t.Errorf("%s: %s(%v) = %v, %v; plain %v, %v", filepath.Base(script), c.Action.Field, args, got, gotErr, want, wantErr)
			}
		}
	}
	return calls
}

// instantiateBoth makes a module twice; neither when the plain one needs what is
// not there.
func instantiateBoth(t *testing.T, file string, plain, metered wazero.Runtime) pair {
	t.Helper()
	ctx := context.Background()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions()
	p, err := plain.InstantiateWithConfig(ctx, b, config)
	if err != nil {
		return pair{}
	}
	rewritten, err := wasm.Meter(b)
	if err != nil {
		t.Errorf("%s: %v", filepath.Base(file), err)
		return pair{}
	}
	m, err := metered.InstantiateWithConfig(ctx, rewritten.Bytes, config)
	if err != nil {
		t.Errorf("%s: instantiate metered: %v", filepath.Base(file), err)
		return pair{}
	}
	return pair{p, m}
}

// Every call of the suite's scripts gives the same, metered and not.
func TestSuiteBehaviour(t *testing.T) {
	ctx := context.Background()
	plain, metered := wazero.NewRuntime(ctx), wazero.NewRuntime(ctx)
	defer plain.Close(ctx)
	defer metered.Close(ctx)
	refuels := 0
	_, err := metered.NewHostModuleBuilder(wasm.RefuelModule).NewFunctionBuilder().
		WithFunc(func() int64 { refuels++; return 1 }).Export(wasm.RefuelName).Instantiate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(suiteFiles(t)[0])
	scripts, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(scripts) < 50 {
		t.Fatalf("%d scripts, %v", len(scripts), err)
	}
	calls := 0
	for _, script := range scripts {
		calls += compare(t, script, plain, metered)
	}
	if calls < 10_000 || refuels < 1000 {
		t.Errorf("%d calls with %d refuels were compared; the comparison is broken", calls, refuels)
	}
	t.Logf("%d calls of %d scripts are the same metered, with %d refuels between", calls, len(scripts), refuels)
}
