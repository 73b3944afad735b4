package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime/wasm"
)

// MaxModuleSize bounds a module, in bytes.
const MaxModuleSize = 64 << 20

// The names of the exports; see sdk/ABI.md.
const (
	exportVersion = "pelton_abi_1"
	exportHandle  = "pelton_handle"
	exportStart   = "pelton_start"
	exportResume  = "pelton_resume"
	exportInit    = "_initialize"
	wasiModule    = "wasi_snapshot_preview1"
)

// Module is a compiled module that fits the ABI and its manifest's grants. It
// is safe for concurrent use.
type Module struct {
	engine   *Engine
	code     *code
	compiled wazero.CompiledModule
	digest   string
	shares   bool     // has the exports for calls beside each other
	globals  []string // exports that hold its mutable globals
	changes  []string // that cannot be set back
}

// fits refuses a module whose instances cannot be set back between messages.
func (m *Module) fits() error {
	if len(m.changes) > 0 {
		return fmt.Errorf("%w: it uses %s, whose effect outlives a message; use isolation: instance", ErrImage, strings.Join(m.changes, ", "))
	}
	return nil
}

// Digest returns the sha256 of a module's bytes, as sha256:<hex>.
func Digest(module []byte) string {
	sum := sha256.Sum256(module)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Compile compiles a module and checks everything that can be checked before
// it runs: that it is one, that it holds to the ABI, that it imports only what
// the manifest grants. All violations are reported together.
func (e *Engine) Compile(ctx context.Context, module []byte, m *manifests.Manifest) (*Module, error) {
	if err := CheckHeader(module); err != nil {
		return nil, err
	}
	digest := Digest(module)
	if m.Digest != "" && m.Digest != digest {
		return nil, fmt.Errorf("%w: the manifest pins %s, the file is %s", ErrDigest, m.Digest, digest)
	}
	c, err := e.acquire(ctx, digest, module)
	if err != nil {
		return nil, fmt.Errorf("%w: compile: %v", ErrNotWasm, err)
	}
	if err := errors.Join(checkExports(c.compiled), e.checkImports(c.compiled, m)); err != nil {
		return nil, errors.Join(err, e.release(ctx, digest, c))
	}
	exports := c.compiled.ExportedFunctions()
	return &Module{
		engine: e, code: c, compiled: c.compiled, digest: digest, globals: c.metered.Globals, changes: c.metered.Changes,
		shares: exports[exportStart] != nil && exports[exportResume] != nil,
	}, nil
}

// Digest returns the module's digest.
func (m *Module) Digest() string { return m.digest }

// Close releases the compiled code, which goes with its last user. No pool of
// the module may be in use.
func (m *Module) Close(ctx context.Context) error {
	return m.engine.release(ctx, m.digest, m.code)
}

// CheckHeader says in plain words what is wrong with a file that is not a core
// wasm module.
func CheckHeader(b []byte) error {
	switch {
	case len(b) == 0:
		return fmt.Errorf("%w: the file is empty", ErrNotWasm)
	case len(b) > MaxModuleSize:
		return fmt.Errorf("%w: %d bytes are above the limit of %d", ErrNotWasm, len(b), MaxModuleSize)
	case bytes.HasPrefix(b, []byte{0x1f, 0x8b}):
		return fmt.Errorf("%w: the file is compressed with gzip; gunzip it first", ErrNotWasm)
	case !bytes.HasPrefix(b, []byte("\x00asm")):
		return fmt.Errorf("%w: it begins with %q instead of \\0asm", ErrNotWasm, b[:min(8, len(b))])
	case len(b) < 8:
		return fmt.Errorf("%w: the file is cut off after %d bytes", ErrNotWasm, len(b))
	case b[4] == 0x0d && b[6] == 0x01:
		return fmt.Errorf("%w: this is a component; Pelton runs core modules (build for wasip1, not wasip2)", ErrNotWasm)
	case !bytes.Equal(b[4:8], []byte{1, 0, 0, 0}):
		return fmt.Errorf("%w: version % x is not 1", ErrNotWasm, b[4:8])
	}
	return nil
}

func checkExports(c wazero.CompiledModule) error {
	exports := c.ExportedFunctions()
	var errs []error
	if exports[exportVersion] == nil {
		hint := "export it to say that the module is made for Pelton's ABI 1"
		for name := range exports {
			if strings.HasPrefix(name, "pelton_abi_") {
				hint = "it has " + name + ", which this host does not know"
			}
		}
		errs = append(errs, fmt.Errorf("%w: no export %s; %s", ErrABI, exportVersion, hint))
	}
	i32, i64 := api.ValueTypeI32, api.ValueTypeI64
	if h := exports[exportHandle]; h == nil {
		errs = append(errs, fmt.Errorf("%w: no export %s; build a reactor (Go: -buildmode=c-shared)", ErrABI, exportHandle))
	} else if !sameTypes(h.ParamTypes(), i32, i32, i32) || !sameTypes(h.ResultTypes(), i64) {
		errs = append(errs, fmt.Errorf("%w: export %s is not (i32, i32, i32) -> i64", ErrABI, exportHandle))
	}
	if h := exports[exportStart]; h != nil && (!sameTypes(h.ParamTypes(), i32, i32) || !sameTypes(h.ResultTypes(), i64)) {
		errs = append(errs, fmt.Errorf("%w: export %s is not (i32, i32) -> i64", ErrABI, exportStart))
	}
	if h := exports[exportResume]; h != nil && (len(h.ParamTypes()) > 0 || !sameTypes(h.ResultTypes(), i64)) {
		errs = append(errs, fmt.Errorf("%w: export %s is not () -> i64", ErrABI, exportResume))
	}
	if init := exports[exportInit]; init != nil && (len(init.ParamTypes()) > 0 || len(init.ResultTypes()) > 0) {
		errs = append(errs, fmt.Errorf("%w: export %s is not () -> ()", ErrABI, exportInit))
	}
	if len(c.ImportedMemories()) > 0 {
		errs = append(errs, fmt.Errorf("%w: it imports a memory; export its own instead", ErrABI))
	}
	if c.ExportedMemories()["memory"] == nil {
		errs = append(errs, fmt.Errorf("%w: no exported memory named memory", ErrABI))
	}
	return errors.Join(errs...)
}

func sameTypes(got []api.ValueType, want ...api.ValueType) bool {
	return bytes.Equal(got, want)
}

// checkImports reports every import that the host does not have and every one
// that the manifest does not grant.
func (e *Engine) checkImports(c wazero.CompiledModule, m *manifests.Manifest) error {
	var errs []error
	wasi := e.runtime.Module(wasiModule).ExportedFunctionDefinitions()
	metering := 0                    // the import that metering adds is ours
	missing := map[string][]string{} // imports by the grant that they need
	for _, f := range c.ImportedFunctions() {
		module, name, _ := f.Import()
		switch module {
		case wasiModule:
			switch offered := wasi[name]; {
			case offered == nil:
				errs = append(errs, fmt.Errorf("%w: import %s.%s is not offered", ErrABI, module, name))
			case !sameTypes(f.ParamTypes(), offered.ParamTypes()...) || !sameTypes(f.ResultTypes(), offered.ResultTypes()...):
				errs = append(errs, fmt.Errorf("%w: import %s.%s has another signature", ErrABI, module, name))
			}
		case hostModule:
			h, ok := hostFunctions[name]
			if name == wasm.RefuelName {
				if metering++; metering == 1 {
					continue
				}
			}
			switch {
			case !ok:
				errs = append(errs, fmt.Errorf("%w: import %s.%s does not exist in ABI 1", ErrABI, module, name))
			case !sameTypes(f.ParamTypes(), h.params...) || !sameTypes(f.ResultTypes(), h.results...):
				errs = append(errs, fmt.Errorf("%w: import %s.%s has another signature", ErrABI, module, name))
			case h.grant != "" && !granted(m, h.grant):
				missing[h.grant] = append(missing[h.grant], name)
			}
		default:
			errs = append(errs, fmt.Errorf("%w: import %s.%s: there is no module %q", ErrABI, module, name, module))
		}
	}
	grants := make([]string, 0, len(missing))
	for g := range missing {
		grants = append(grants, g)
	}
	sort.Strings(grants)
	for _, g := range grants {
		errs = append(errs, fmt.Errorf("%w: %s (it imports %s); add grants.%s to the manifest", ErrNotGranted, g, strings.Join(missing[g], ", "), g))
	}
	return errors.Join(errs...)
}

// granted reports whether the manifest grants anything of a capability.
func granted(m *manifests.Manifest, grant string) bool {
	switch grant {
	case "sqlite":
		return len(m.Grants.SQLite) > 0
	case "http":
		return len(m.Grants.HTTP) > 0
	case "blob":
		return len(m.Grants.Blob) > 0
	case "kv":
		return len(m.Grants.KV) > 0
	case "publish":
		return len(m.Grants.Publish) > 0
	case "image":
		return m.Grants.Image != nil
	}
	return false
}
