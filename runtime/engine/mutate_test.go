package engine

import (
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/pelton-run/pelton/runtime/wasm"
)

// agree checks that a module that the rewrite takes is valid exactly when its
// rewritten form is, and reports whether it was.
func agree(t *testing.T, r wazero.Runtime, module []byte) bool {
	t.Helper()
	metered, err := wasm.Meter(slices.Clone(module))
	if err != nil {
		return false // refused: the engine never sees it
	}
	ctx := context.Background()
	plain, plainErr := r.CompileModule(ctx, module)
	if plainErr == nil {
		plain.Close(ctx)
	}
	m, err := r.CompileModule(ctx, metered.Bytes)
	if err == nil {
		m.Close(ctx)
	}
	// A name section that does not decode is left out: no meaning is lost.
	names := plainErr != nil && strings.Contains(plainErr.Error(), "custom")
	if (err == nil) != (plainErr == nil) && !names {
		t.Errorf("% x: metered %v, plain %v", module, err, plainErr)
	}
	return err == nil
}

// Modules of the official suite with bytes changed come out valid if they were,
// or are refused; nothing stumbles.
func TestMutatedSuite(t *testing.T) {
	r := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigInterpreter())
	defer r.Close(t.Context())
	random := rand.New(rand.NewPCG(3, 4))
	valid, all := 0, 0
	for _, file := range suiteFiles(t) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) < 9 || len(b) > 4<<10 {
			continue
		}
		for range 3 {
			m := slices.Clone(b)
			for range 1 + random.IntN(2) {
				m[8+random.IntN(len(m)-8)] = byte(random.Uint32())
			}
			all++
			if agree(t, r, m) {
				valid++
			}
		}
	}
	if valid < 500 {
		t.Errorf("%d of %d mutated modules are valid; the mutation tests nothing", valid, all)
	}
	t.Logf("%d of %d mutated modules are valid", valid, all)
}

func FuzzRewrite(f *testing.F) {
	for _, tt := range hostile() {
		if b := tt.module.bytes(); len(b) < 4<<10 {
			f.Add(b)
		}
	}
	r := wazero.NewRuntimeWithConfig(context.Background(), wazero.NewRuntimeConfigInterpreter())
	f.Fuzz(func(t *testing.T, module []byte) { agree(t, r, module) })
}
