package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/tetratelabs/wazero"

	"github.com/pelton-run/pelton/runtime/wasm"
)

// Config is how an engine is set up.
type Config struct {
	// CacheDir keeps compiled code between runs, "" keeps none. Whoever can
	// write there owns the host, so it is created for the user alone.
	CacheDir string
	// Unmetered leaves the metering out: a guest in an endless loop then never
	// returns. For measurements only.
	Unmetered bool
}

// MaxMemoryPages bounds the memory of any instance, in pages of 64 KiB: 2 GiB.
// The limit of the manifest is below it.
const MaxMemoryPages = 32_768

// Engine compiles and runs modules. It is safe for concurrent use.
type Engine struct {
	runtime wazero.Runtime
	cache   wazero.CompilationCache
	config  Config
}

// New makes an engine. Close must be called.
func New(ctx context.Context, config Config) (*Engine, error) {
	rc := wazero.NewRuntimeConfig().
		WithMemoryLimitPages(MaxMemoryPages).
		WithDebugInfoEnabled(false)
	e := &Engine{config: config}
	if config.CacheDir != "" {
		if err := os.MkdirAll(config.CacheDir, 0o700); err != nil {
			return nil, fmt.Errorf("create compile cache: %w", err)
		}
		cache, err := wazero.NewCompilationCacheWithDir(config.CacheDir)
		if err != nil {
			return nil, fmt.Errorf("open compile cache: %w", err)
		}
		e.cache, rc = cache, rc.WithCompilationCache(cache)
	}
	e.runtime = wazero.NewRuntimeWithConfig(ctx, rc)
	if err := instantiateWASI(ctx, e.runtime); err != nil {
		return nil, errors.Join(fmt.Errorf("set up wasi: %w", err), e.Close(ctx))
	}
	if err := instantiateHost(ctx, e.runtime); err != nil {
		return nil, errors.Join(fmt.Errorf("set up host module: %w", err), e.Close(ctx))
	}
	return e, nil
}

// Close ends the engine. No pool may be in use.
func (e *Engine) Close(ctx context.Context) error {
	err := e.runtime.Close(ctx)
	if e.cache != nil {
		err = errors.Join(err, e.cache.Close(ctx))
	}
	return err
}

// compile meters and compiles a module. A corrupt entry of the disk cache makes
// wazero fail; then the entries of the cache are removed and compiling begins
// anew.
func (e *Engine) compile(ctx context.Context, module []byte) (wazero.CompiledModule, *wasm.Metered, error) {
	metered, err := wasm.Meter(module)
	if err != nil {
		return nil, nil, err
	}
	if e.config.Unmetered {
		metered.Globals, metered.Changes = nil, []string{"unmetered code"}
	} else {
		module = metered.Bytes
	}
	metered.Bytes = nil
	m, err := e.runtime.CompileModule(ctx, module)
	if err != nil && e.config.CacheDir != "" && strings.Contains(err.Error(), "compilationcache:") {
		if err := clearFolder(e.config.CacheDir); err != nil {
			return nil, nil, fmt.Errorf("clear corrupt compile cache: %w", err)
		}
		m, err = e.runtime.CompileModule(ctx, module)
	}
	return m, metered, err
}

// clearFolder removes the files below a folder, one level of folders deep: the
// layout of wazero's cache.
func clearFolder(dir string) error {
	versions, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, v := range versions {
		root := dir + "/" + v.Name()
		files, err := os.ReadDir(root)
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := os.Remove(root + "/" + f.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}
