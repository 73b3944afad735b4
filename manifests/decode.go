package manifests

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// Decode reads a manifest strictly, fills in the defaults and validates it.
// file is only used in errors and for the default module name. The error is a
// [Problems]. It is safe for concurrent use.
func Decode(file string, src []byte) (*Manifest, error) {
	d, err := parseDocument(file, src)
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	if err := d.decode(m); err != nil {
		return nil, err
	}
	applyDefaults(m, d)
	validate(m, d)
	if err := d.problems(); err != nil {
		return nil, err
	}
	return m, nil
}

// Load reads the manifest of a file. See [Decode].
func Load(path string) (*Manifest, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	return Decode(path, src)
}

// Fingerprint is the sha256 of the resolved manifest together with the content
// of its migrations, as sha256:<hex>. dir is the folder of the manifest.
// Formatting, comments and the order of keys do not change it.
func (m *Manifest) Fingerprint(dir string) (string, error) {
	resolved, err := json.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("encode manifest %s: %w", m.Name, err)
	}
	h := sha256.New()
	h.Write(resolved)
	for _, name := range sortedKeys(m.Grants.SQLite) {
		files, err := Migrations(dir, m.Grants.SQLite[name])
		if err != nil {
			return "", err
		}
		for _, f := range files {
			fmt.Fprintf(h, "\x00%s\x00%s\x00%d\x00%s", name, f.Name, len(f.SQL), f.SQL)
		}
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// Migration is one file of a database's migrations.
type Migration struct {
	Name string // the file's name
	SQL  string
}

// MaxMigrationSize bounds one migration file, in bytes.
const MaxMigrationSize = 1 << 20

// Migrations reads the migrations of a grant in the order of their names. dir
// is the folder of the manifest.
func Migrations(dir string, g SQLiteGrant) ([]Migration, error) {
	if g.Migrations == "" {
		return nil, nil
	}
	folder := filepath.Join(dir, filepath.FromSlash(g.Migrations))
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w; make the folder beside the manifest, or correct migrations in its sqlite grant", err)
	}
	var files []Migration
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".sql") {
			continue
		}
		src, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read migration: %w", err)
		}
		if len(src) > MaxMigrationSize {
			return nil, fmt.Errorf("read migration %s: %d bytes are above the limit of %d", e.Name(), len(src), MaxMigrationSize)
		}
		files = append(files, Migration{Name: e.Name(), SQL: string(src)})
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("read migrations: %s holds no .sql file", folder)
	}
	return files, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// UnmarshalYAML reads a subject, or a mapping of subject and core.
func (g *PublishGrant) UnmarshalYAML(n ast.Node) error {
	if text, ok := scalarText(n); ok {
		*g = PublishGrant{Subject: text}
		return nil
	}
	type plain PublishGrant
	return yaml.NodeToValue(n, (*plain)(g), yaml.Strict(), yaml.DisallowUnknownField())
}
