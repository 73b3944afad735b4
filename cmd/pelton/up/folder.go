package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"

	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime/engine"
)

// MaxFunctions bounds the functions of one folder.
const MaxFunctions = 2000

// Candidate is one manifest file of a folder, read or not.
type Candidate struct {
	File     string
	Manifest *manifests.Manifest // nil when Err is set
	Err      error
}

// Name is the function's, or the file's when the manifest could not be read.
func (c *Candidate) Name() string {
	if c.Manifest != nil {
		return c.Manifest.Name
	}
	base := filepath.Base(c.File)
	return strings.TrimSuffix(base, filepath.Ext(base))
}

// ReadFolder reads every manifest of a folder. A manifest that is wrong, or
// that has the name of another, is a candidate with its error; only a folder
// that cannot be read is an error.
func ReadFolder(dir string) ([]Candidate, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read functions folder: %w; make it, or name another with --dir", err)
	}
	var found []Candidate
	taken, durables := map[string]string{}, map[string]string{}
	for _, e := range entries {
		if !isManifest(e.Name()) || e.IsDir() {
			continue
		}
		c := Candidate{File: filepath.Join(dir, e.Name())}
		c.Manifest, c.Err = manifests.Load(c.File)
		if c.Err == nil {
			if c.Err = clash(&c, taken, durables); c.Err != nil {
				c.Manifest = nil
			}
		}
		found = append(found, c)
	}
	if len(found) > MaxFunctions {
		return nil, fmt.Errorf("read functions folder: %d manifests are above the limit of %d", len(found), MaxFunctions)
	}
	sort.Slice(found, func(i, j int) bool { return found[i].File < found[j].File })
	return found, nil
}

// clash refuses a function with the name, or with a durable, of another. It
// remembers those of one that it passes.
func clash(c *Candidate, names, durables map[string]string) error {
	file := filepath.Base(c.File)
	if first, ok := names[c.Manifest.Name]; ok {
		return fmt.Errorf("%s: name: %q is the name of the function in %s too; give one of them another name", c.File, c.Manifest.Name, first)
	}
	for i, t := range c.Manifest.Triggers {
		if t.DurableName == "" {
			continue
		}
		key := t.Stream + " " + t.DurableName
		if first, ok := durables[key]; ok {
			return fmt.Errorf("%s: triggers[%d].durable_name: %q is the durable of the function in %s too, and the two would take each other's messages; give one of them another", c.File, i, t.DurableName, first)
		}
		durables[key] = file
	}
	names[c.Manifest.Name] = file
	return nil
}

// isManifest leaves out the folder's other files, hidden ones and the leavings
// of editors.
func isManifest(name string) bool {
	if strings.HasPrefix(name, ".") || name == manifests.StreamsFile || name == "pelton.yaml" || strings.HasSuffix(name, ".schema.json") {
		return false
	}
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// ModulePath is where a manifest's module lies.
func ModulePath(file string, m *manifests.Manifest) string {
	return filepath.Join(filepath.Dir(file), filepath.FromSlash(m.Module))
}

// ReadModule reads a module, and says what is missing when it is not there.
func ReadModule(file string, m *manifests.Manifest) (engine.Binary, error) {
	path := ModulePath(file, m)
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return engine.Binary{}, fmt.Errorf("%s: module: %s does not exist; build it, or name the file that is there", file, path)
	}
	if err == nil && info.Size() > engine.MaxModuleSize {
		return engine.Binary{}, fmt.Errorf("%s: module: %s has %d bytes, the limit is %d", file, path, info.Size(), engine.MaxModuleSize)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return engine.Binary{}, fmt.Errorf("read module: %w", err)
	}
	return engine.NewBinary(b), nil
}

// shelf reads each module once for all functions that have it. It is safe for
// concurrent use.
type shelf struct {
	mu    sync.Mutex
	files map[string]*shelved // by path
}

type shelved struct {
	once   sync.Once
	binary engine.Binary
	err    error
}

func (s *shelf) read(file string, m *manifests.Manifest) (engine.Binary, error) {
	path := ModulePath(file, m)
	s.mu.Lock()
	if s.files == nil {
		s.files = map[string]*shelved{}
	}
	f := s.files[path]
	if f == nil {
		f = &shelved{}
		s.files[path] = f
	}
	s.mu.Unlock()
	f.once.Do(func() { f.binary, f.err = ReadModule(file, m) })
	if errors.Is(f.err, os.ErrNotExist) {
		_, err := ReadModule(file, m) // the error names the file that asks
		return engine.Binary{}, err
	}
	return f.binary, f.err
}

// warm compiles the modules of the candidates, which takes longer than all else
// at a start, and returns what lets go of them.
func (h *Host) warm(ctx context.Context, candidates []Candidate) (done func()) {
	var mu sync.Mutex
	var modules []*engine.Module
	var group sync.WaitGroup
	for i := range candidates {
		c := &candidates[i]
		if c.Err != nil || !c.Manifest.RunsIn(h.config.Region) {
			continue
		}
		group.Go(func() {
			b, err := h.shelf.read(c.File, c.Manifest)
			if err != nil {
				return // loading says so
			}
			if m, err := h.engine.Warm(ctx, b); err == nil {
				mu.Lock()
				defer mu.Unlock()
				modules = append(modules, m)
			}
		})
	}
	return func() {
		group.Wait()
		for _, m := range modules {
			m.Close(ctx) // the functions have them too
		}
		h.shelf = shelf{}
	}
}
