package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"sort"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxFileSize bounds a manifest or a streams.yaml, in bytes.
const MaxFileSize = 256 << 10

// document is one parsed YAML file: what a problem needs to say where it is.
type document struct {
	file   string
	lines  []string
	root   ast.Node
	places map[string]*token.Position // by path of the field
	found  Problems
}

// parseDocument reads the file's one document. A byte order mark and carriage
// returns, which Windows editors leave, are harmless.
func parseDocument(file string, src []byte) (*document, error) {
	d := &document{file: file, places: map[string]*token.Position{}}
	switch {
	case len(src) > MaxFileSize:
		return nil, d.whole(fmt.Sprintf("is %d bytes long", len(src)), fmt.Sprintf("the limit is %d bytes", MaxFileSize))
	case bytes.HasPrefix(src, []byte{0xFF, 0xFE}), bytes.HasPrefix(src, []byte{0xFE, 0xFF}):
		return nil, d.whole("is UTF-16", "save it as UTF-8")
	case bytes.IndexByte(src, 0) >= 0:
		return nil, d.whole("holds a NUL byte, so it is not text", "save it as UTF-8")
	}
	src = bytes.TrimPrefix(src, []byte{0xEF, 0xBB, 0xBF})
	src = bytes.ReplaceAll(src, []byte("\r\n"), []byte("\n"))
	d.lines = strings.Split(string(src), "\n")
	f, err := parser.ParseBytes(src, 0)
	if err != nil {
		return nil, d.explain(err)
	}
	if err := d.takeRoot(f); err != nil {
		return nil, err
	}
	d.index("", d.root)
	return d, d.found.err()
}

func (d *document) takeRoot(f *ast.File) error {
	var bodies []ast.Node
	for _, doc := range f.Docs {
		if doc.Body != nil && doc.Body.Type() != ast.CommentType {
			bodies = append(bodies, doc.Body)
		}
	}
	switch {
	case len(bodies) == 0:
		return d.whole("is empty", "see docs/manifest.md for an example")
	case len(bodies) > 1:
		p := problemAt(bodies[1], "a second document begins here", "one file holds one document; remove the --- line or move the rest to a file of its own")
		return d.place(p, "")
	}
	d.root = bodies[0]
	if _, ok := asMapping(d.root); !ok {
		return d.place(problemAt(d.root, "is not a mapping of fields", "begin with a line such as name: my-function"), "")
	}
	return nil
}

// asMapping returns the entries of a mapping node. A mapping of one entry is a
// node type of its own in the library.
func asMapping(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// index records the place of each field, and refuses anchors and aliases: they
// can multiply a small file into a huge one.
func (d *document) index(path string, n ast.Node) {
	if n == nil {
		return
	}
	if n.GetToken() != nil && path != "" {
		d.places[path] = n.GetToken().Position
	}
	switch n.Type() {
	case ast.AnchorType, ast.AliasType, ast.MergeKeyType, ast.TagType:
		p := problemAt(n, "anchors, aliases, merge keys and tags are not part of this format", "write the value out")
		d.found = append(d.found, d.place(p, path))
		return
	}
	if entries, ok := asMapping(n); ok {
		for _, e := range entries {
			d.index(joinPath(path, e.Key.String()), e.Value)
		}
		return
	}
	if seq, ok := n.(*ast.SequenceNode); ok {
		for i, v := range seq.Values {
			d.index(fmt.Sprintf("%s[%d]", path, i), v)
		}
	}
}

func joinPath(path, key string) string {
	key = strings.Trim(key, `"'`)
	if path == "" {
		return key
	}
	return path + "." + key
}

// decode fills the value strictly from the document.
func (d *document) decode(into any) error {
	err := yaml.NodeToValue(d.root, into, yaml.Strict(), yaml.DisallowUnknownField())
	if err != nil {
		return d.explain(err, into)
	}
	return nil
}

// has reports whether the file says anything at the path.
func (d *document) has(path string) bool { return d.places[path] != nil }

// fail records a problem of a field at the nearest place that the file has.
func (d *document) fail(path, message, hint string) {
	p := &Problem{Message: message, Hint: hint}
	for at := path; at != ""; at = parentPath(at) {
		if pos := d.places[at]; pos != nil {
			p.Line, p.Column = pos.Line, pos.Column
			break
		}
	}
	d.found = append(d.found, d.place(p, path))
}

func parentPath(path string) string {
	if i := strings.LastIndexAny(path, ".["); i > 0 {
		return path[:i]
	}
	return ""
}

// problems returns what was recorded, in the order of the file.
func (d *document) problems() error {
	sort.SliceStable(d.found, func(i, j int) bool { return d.found[i].Line < d.found[j].Line })
	return d.found.err()
}

// whole makes a problem of the file as a whole.
func (d *document) whole(message, hint string) error {
	return Problems{{File: d.file, Message: message, Hint: hint}}
}

// place fills in what a problem needs from the document.
func (d *document) place(p *Problem, field string) *Problem {
	p.File = d.file
	if p.Field == "" {
		p.Field = field
	}
	if p.Line > 0 && p.Line <= len(d.lines) {
		p.Source = strings.TrimRight(d.lines[p.Line-1], " \t")
	}
	return p
}

// fieldAt returns the path of the innermost field that begins at or before the
// place.
func (d *document) fieldAt(line, column int) string {
	best, at := "", token.Position{}
	for path, pos := range d.places {
		if pos.Line != line || pos.Column > column {
			continue
		}
		if pos.Column > at.Column || (pos.Column == at.Column && len(path) > len(best)) {
			best, at = path, *pos
		}
	}
	return best
}

var quotedName = regexp.MustCompile(`"([^"]+)"`)

// explain turns the library's error into problems of our own form.
func (d *document) explain(err error, into ...any) error {
	var p *Problem
	if errors.As(err, &p) {
		return Problems{d.place(p, d.fieldAt(p.Line, p.Column))}
	}
	var ye yaml.Error
	if !errors.As(err, &ye) {
		return d.whole(err.Error(), "")
	}
	p = &Problem{Message: firstLower(ye.GetMessage())}
	if tk := ye.GetToken(); tk != nil {
		p.Line, p.Column = tk.Position.Line, tk.Position.Column
	}
	var unknown *yaml.UnknownFieldError
	var duplicate *yaml.DuplicateKeyError
	var syntax *yaml.SyntaxError
	var mismatch *yaml.TypeError
	var shape *yaml.UnexpectedNodeTypeError
	switch {
	case errors.As(err, &shape):
		p.Message = fmt.Sprintf("is a %s where a %s is expected", nodeName(shape.Actual), nodeName(shape.Expected))
		p.Hint = "see docs/manifest.md for the field's form; a list is written [a, b]"
	case errors.As(err, &unknown):
		p.Field = d.fieldAt(p.Line, p.Column)
		p.Hint = "check the spelling; docs/manifest.md lists every field"
		if m := quotedName.FindStringSubmatch(p.Message); m != nil {
			p.Field, p.Hint = m[1], unknownHint(m[1], into...)
			p.Message = "there is no such field"
		}
	case errors.As(err, &duplicate):
		p.Message, p.Hint = "the key is written twice", "remove one of the two"
	case errors.As(err, &mismatch):
		p.Message = fmt.Sprintf("is a %s where a %s is expected", kindName(mismatch.SrcType), kindName(mismatch.DstType))
		p.Hint = "see docs/manifest.md for the field's form"
	case errors.As(err, &syntax):
		p.Hint = "check indentation (spaces, never tabs), colons and quotes"
		if p.Line <= len(d.lines) && strings.Contains(d.lines[max(0, p.Line-1)], "{{") {
			p.Hint = `quote a value that has {{…}} in it, such as ["video.*.{{region}}"]`
		}
		if p.Line <= len(d.lines) && strings.Contains(d.lines[max(0, p.Line-1)], "\t") {
			p.Hint = "indent with spaces: YAML does not permit tabs"
		}
	}
	return Problems{d.place(p, d.fieldAt(p.Line, p.Column))}
}

func firstLower(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// nodeName names what stands in the file.
func nodeName(t ast.NodeType) string {
	switch t {
	case ast.SequenceType:
		return "list"
	case ast.MappingType, ast.MappingValueType:
		return "mapping"
	}
	return "single value"
}

func kindName(t reflect.Type) string {
	if t == nil {
		return "value of another type"
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return "list"
	case reflect.Map, reflect.Struct:
		return "mapping"
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Pointer:
		return kindName(t.Elem())
	}
	return "number"
}

// unknownHint names the known field that is nearest to a wrong one.
func unknownHint(name string, into ...any) string {
	best, distance := "", 4
	for _, v := range into {
		for _, known := range fieldNames(reflect.TypeOf(v), map[reflect.Type]bool{}) {
			if d := editDistance(name, known); d < distance {
				best, distance = known, d
			}
		}
	}
	if best == "" {
		return "docs/manifest.md lists every field"
	}
	return "did you mean " + best + "?"
}

func fieldNames(t reflect.Type, seen map[reflect.Type]bool) []string {
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map) {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct || seen[t] {
		return nil
	}
	seen[t] = true
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
		names = append(names, fieldNames(t.Field(i).Type, seen)...)
	}
	return names
}

// editDistance is the Levenshtein distance, by the two-row algorithm.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j+1]+1, row[j]+1, diagonal+cost)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
