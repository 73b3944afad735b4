package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
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

// CacheMax bounds the compiled code that is kept on disk, in bytes; the oldest
// goes first.
const CacheMax = 1 << 30

// Engine compiles and runs modules. It is safe for concurrent use.
type Engine struct {
	runtime wazero.Runtime
	cache   wazero.CompilationCache
	config  Config
	workers chan struct{} // one for each module that is compiled at one time
	tidy    *time.Timer   // gives memory back to the system

	mu    sync.Mutex
	codes map[string]*code // by digest
}

// New makes an engine. Close must be called.
func New(ctx context.Context, config Config) (*Engine, error) {
	rc := wazero.NewRuntimeConfig().
		WithMemoryLimitPages(MaxMemoryPages).
		WithDebugInfoEnabled(false)
	e := &Engine{config: config, workers: make(chan struct{}, runtime.GOMAXPROCS(0)), codes: map[string]*code{}}
	e.tidy = time.AfterFunc(time.Hour, debug.FreeOSMemory)
	e.tidy.Stop()
	if config.CacheDir != "" {
		if err := os.MkdirAll(config.CacheDir, 0o700); err != nil {
			return nil, fmt.Errorf("create compile cache: %w", err)
		}
		if err := prune(config.CacheDir, CacheMax); err != nil {
			return nil, fmt.Errorf("prune compile cache: %w", err)
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
	e.tidy.Stop()
	err := e.runtime.Close(ctx)
	if e.cache != nil {
		err = errors.Join(err, e.cache.Close(ctx))
	}
	return err
}

// prune removes the oldest files below a folder until no more than most bytes are
// left.
func prune(dir string, most int64) error {
	type entry struct {
		path string
		info fs.FileInfo
	}
	var all []entry
	var size int64
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another host has the same cache
		}
		if err != nil {
			return err
		}
		all, size = append(all, entry{path, info}), size+info.Size()
		return nil
	})
	slices.SortFunc(all, func(a, b entry) int { return a.info.ModTime().Compare(b.info.ModTime()) })
	for _, f := range all {
		if size <= most {
			break
		}
		size -= f.info.Size()
		if rm := os.Remove(f.path); rm != nil && !errors.Is(rm, fs.ErrNotExist) {
			return errors.Join(err, rm)
		}
	}
	return err
}
