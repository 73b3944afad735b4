package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/pelton-run/pelton/runtime/wasm"
)

// UnloadAfter is how long compiled code without an instance stays in memory: it
// takes four times the module's size. From the cache it is back in a fraction of
// a second.
const UnloadAfter = 30 * time.Second

// code is a module's compiled code, shared by all functions that have the module.
type code struct {
	engine *Engine
	digest string
	users  int // guarded by the engine's lock

	// What is known of the module once ready is closed.
	ready   chan struct{}
	err     error
	abi     error               // where it does not hold to the ABI
	wants   map[string][]string // imports by the grant that they need
	memory  int64               // bytes that it begins with
	shares  bool                // has the exports for calls beside each other
	globals []string            // exports that hold its mutable globals
	changes []string            // that cannot be set back

	mu        sync.Mutex
	source    source
	compiled  wazero.CompiledModule // nil while it is not in memory
	instances int
	timer     *time.Timer // unloads it
}

// source is a rewritten module, to compile it again: a file of the cache, or its
// bytes.
type source struct {
	file  *os.File
	bytes []byte
}

// acquire returns a module's code. Each digest is compiled once, whoever asks
// first; the others wait. release must be called if there is no error.
func (e *Engine) acquire(ctx context.Context, digest string, module []byte) (*code, error) {
	e.mu.Lock()
	c := e.codes[digest]
	first := c == nil
	if first {
		c = &code{engine: e, digest: digest, ready: make(chan struct{})}
		e.codes[digest] = c
	}
	c.users++
	e.mu.Unlock()
	if first {
		c.err = c.make(context.WithoutCancel(ctx), module)
		close(c.ready)
	}
	<-c.ready
	if c.err != nil {
		return nil, errors.Join(c.err, c.release(ctx))
	}
	return c, nil
}

// release gives code back; with its last user it goes.
func (c *code) release(ctx context.Context) error {
	c.engine.mu.Lock()
	c.users--
	last := c.users == 0
	if last {
		delete(c.engine.codes, c.digest)
	}
	c.engine.mu.Unlock()
	if !last {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
	err := c.drop(ctx)
	if c.source.file != nil {
		err = errors.Join(err, c.source.file.Close())
	}
	return err
}

// drop takes the compiled code out of memory.
func (c *code) drop(ctx context.Context) error {
	compiled := c.compiled
	c.compiled = nil
	if compiled == nil {
		return nil
	}
	return compiled.Close(ctx)
}

// make rewrites and compiles a module and finds out about it.
func (c *code) make(ctx context.Context, module []byte) error {
	metered, err := wasm.Meter(module)
	if err != nil {
		return err
	}
	c.globals, c.changes = metered.Globals, metered.Changes
	if c.engine.config.Unmetered {
		c.globals, c.changes, metered.Bytes = nil, []string{"unmetered code"}, module
	}
	if c.compiled, err = c.engine.compile(ctx, metered.Bytes); err != nil {
		return err
	}
	c.timer = time.AfterFunc(UnloadAfter, c.unload)
	exports := c.compiled.ExportedFunctions()
	c.shares = exports[exportStart] != nil && exports[exportResume] != nil
	c.abi = checkExports(c.compiled)
	if m := c.compiled.ExportedMemories()["memory"]; m != nil {
		c.memory = int64(m.Min()) << 16
	}
	imports := c.engine.checkImports(c.compiled)
	c.abi, c.wants = errors.Join(c.abi, imports.err), imports.wants
	c.source, err = c.engine.keep(c.digest, metered.Bytes)
	return err
}

// load returns the compiled code for one more instance; done gives it back.
func (c *code) load(ctx context.Context) (wazero.CompiledModule, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.compiled == nil {
		b, err := c.source.read()
		if err != nil {
			return nil, fmt.Errorf("read module: %w", err)
		}
		if c.compiled, err = c.engine.compile(context.WithoutCancel(ctx), b); err != nil {
			return nil, fmt.Errorf("compile module again: %w", err)
		}
	}
	c.instances++
	return c.compiled, nil
}

// done says that an instance is gone.
func (c *code) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.instances--; c.instances == 0 {
		c.timer.Reset(UnloadAfter)
	}
}

// unload takes code without an instance out of memory.
func (c *code) unload() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.instances == 0 && c.compiled != nil {
		c.drop(context.Background()) // there is nobody to tell, and nothing to do about it
		c.engine.tidy.Reset(tidyAfter)
	}
}

// tidyAfter is how long after code was unloaded its memory is given back to the
// system; more may be unloaded until then.
const tidyAfter = time.Second

// compile compiles a rewritten module. A corrupt entry of the disk cache makes
// wazero fail; then the entries of the cache are removed and compiling begins
// anew.
func (e *Engine) compile(ctx context.Context, module []byte) (wazero.CompiledModule, error) {
	e.workers <- struct{}{}
	defer func() { <-e.workers }()
	m, err := e.runtime.CompileModule(ctx, module)
	if err != nil && e.config.CacheDir != "" && strings.Contains(err.Error(), "compilationcache:") {
		if err := prune(e.config.CacheDir, 0); err != nil {
			return nil, fmt.Errorf("clear corrupt compile cache: %w", err)
		}
		m, err = e.runtime.CompileModule(ctx, module)
	}
	return m, err
}

// keep stores a rewritten module in the cache, if there is one. The open file
// stays readable when the cache is pruned.
func (e *Engine) keep(digest string, module []byte) (source, error) {
	if e.config.CacheDir == "" {
		return source{bytes: module}, nil
	}
	dir := filepath.Join(e.config.CacheDir, "modules")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return source{}, fmt.Errorf("create module cache: %w", err)
	}
	f, err := os.CreateTemp(dir, strings.TrimPrefix(digest, "sha256:")[:16]+"-*")
	if err != nil {
		return source{}, fmt.Errorf("keep module: %w", err)
	}
	// It has no name from here on: nothing but this engine needs it.
	if err := os.Remove(f.Name()); err != nil {
		return source{}, errors.Join(fmt.Errorf("keep module: %w", err), f.Close())
	}
	if _, err := f.Write(module); err != nil {
		return source{}, errors.Join(fmt.Errorf("keep module: %w", err), f.Close())
	}
	return source{file: f}, nil
}

func (s source) read() ([]byte, error) {
	if s.file == nil {
		return s.bytes, nil
	}
	info, err := s.file.Stat()
	if err != nil {
		return nil, err
	}
	b := make([]byte, info.Size())
	if _, err := s.file.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b, nil
}
