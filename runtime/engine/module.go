package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// Module is a module that fits the ABI and its manifest's grants. It is safe for
// concurrent use.
type Module struct{ code *code }

// fits refuses a module whose instances cannot be set back between messages.
func (m *Module) fits() error {
	if len(m.code.changes) > 0 {
		return fmt.Errorf("%w: it uses %s, whose effect outlives a message; use isolation: instance", ErrImage, strings.Join(m.code.changes, ", "))
	}
	return nil
}

// Digest returns the sha256 of a module's bytes, as sha256:<hex>.
func Digest(module []byte) string {
	sum := sha256.Sum256(module)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Binary is a module as it lies in a file.
type Binary struct {
	Bytes  []byte
	Digest string
}

// NewBinary computes the digest of a module.
func NewBinary(module []byte) Binary { return Binary{module, Digest(module)} }

// Warm compiles a module ahead of the functions that have it. The module must be
// closed when they are there.
func (e *Engine) Warm(ctx context.Context, b Binary) (*Module, error) {
	if err := CheckHeader(b.Bytes); err != nil {
		return nil, err
	}
	c, err := e.acquire(ctx, b.Digest, b.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: compile: %v", ErrNotWasm, err)
	}
	return &Module{c}, nil
}

// Compile compiles a module and checks everything that can be checked before
// it runs: that it is one, that it holds to the ABI, that it imports only what
// the manifest grants. All violations are reported together.
func (e *Engine) Compile(ctx context.Context, b Binary, m *manifests.Manifest) (*Module, error) {
	if m.Digest != "" && m.Digest != b.Digest {
		return nil, errors.Join(CheckHeader(b.Bytes), fmt.Errorf("%w: the manifest pins %s, the file is %s", ErrDigest, m.Digest, b.Digest))
	}
	module, err := e.Warm(ctx, b)
	if err != nil {
		return nil, err
	}
	c := module.code
	var image error
	if m.Isolation == "message" {
		image = module.fits()
	}
	if err := errors.Join(c.abi, checkGrants(c.wants, m), image); err != nil {
		return nil, errors.Join(err, c.release(ctx))
	}
	return module, nil
}

// Digest returns the module's digest.
func (m *Module) Digest() string { return m.code.digest }

// Close releases the compiled code, which goes with its last user. No pool of
// the module may be in use.
func (m *Module) Close(ctx context.Context) error { return m.code.release(ctx) }

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

// imports is what a module asks for.
type imports struct {
	wants map[string][]string // by the grant that it needs
	err   error               // what the host does not have
}

// checkImports reports every import that the host does not have.
func (e *Engine) checkImports(c wazero.CompiledModule) imports {
	found := imports{wants: map[string][]string{}}
	var errs []error
	wasi := e.runtime.Module(wasiModule).ExportedFunctionDefinitions()
	metering := 0 // the import that metering adds is ours
	for _, f := range c.ImportedFunctions() {
		module, name, _ := f.Import()
		if module == hostModule && name == wasm.RefuelName {
			if metering++; metering == 1 {
				continue
			}
		}
		var offered, right bool
		switch module {
		case wasiModule:
			d := wasi[name]
			offered = d != nil
			right = offered && sameTypes(f.ParamTypes(), d.ParamTypes()...) && sameTypes(f.ResultTypes(), d.ResultTypes()...)
		case hostModule:
			var h hostFunction
			h, offered = hostFunctions[name]
			right = offered && sameTypes(f.ParamTypes(), h.params...) && sameTypes(f.ResultTypes(), h.results...)
			if right && h.grant != "" {
				found.wants[h.grant] = append(found.wants[h.grant], name)
			}
		default:
			errs = append(errs, fmt.Errorf("%w: import %s.%s: there is no module %q", ErrABI, module, name, module))
			continue
		}
		switch {
		case !offered:
			errs = append(errs, fmt.Errorf("%w: import %s.%s is not offered", ErrABI, module, name))
		case !right:
			errs = append(errs, fmt.Errorf("%w: import %s.%s has another signature", ErrABI, module, name))
		}
	}
	found.err = errors.Join(errs...)
	return found
}

// checkGrants reports every grant that a module needs and the manifest has not.
func checkGrants(wants map[string][]string, m *manifests.Manifest) error {
	var errs []error
	for _, g := range slices.Sorted(maps.Keys(wants)) {
		if !granted(m, g) {
			errs = append(errs, fmt.Errorf("%w: %s (it imports %s); add grants.%s to the manifest", ErrNotGranted, g, strings.Join(wants[g], ", "), g))
		}
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
	case "request":
		return len(m.Grants.Request) > 0
	case "image":
		return m.Grants.Image != nil
	}
	return false
}
