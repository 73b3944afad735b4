package wasm

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The import that Meter adds: refuel() -> i64 is called when the fuel is used up
// and returns the new amount, or does not return.
const (
	RefuelModule = "pelton"
	RefuelName   = "_refuel"
)

// Meter returns the module with fuel metering built in. The fuel is a global of
// the module that begins at 0, so that the first check calls the host.
//
// One unit is charged at each branch back to a loop's head and at each checked
// entry of a function for about [unitSize] instructions that may follow before the
// next check; bulk memory and table instructions are charged by their length and
// checked themselves. See graph for the functions that are not checked at their
// entry, and walk for the branches that do not go back.
func Meter(module []byte) (*Metered, error) {
	list, err := sections(module)
	if err != nil {
		return nil, err
	}
	m := &meter{changes: map[string]bool{}}
	if err := m.survey(list); err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(module)+len(module)/8+64)
	out = append(out, module[:8]...)
	for _, s := range m.complete(list) {
		payload, err := m.rewrite(s)
		if err != nil {
			return nil, err
		}
		out = append(out, s.id)
		out = appendU32(out, uint32(len(payload)))
		out = append(out, payload...)
	}
	return &Metered{Bytes: out, Globals: m.exported, Changes: slices.Sorted(maps.Keys(m.changes))}, nil
}

// The rewritten code may be so many times as large, and something more. To real code
// a twentieth is added.
const (
	maxGrowth     = 3
	maxGrowthMore = 64 << 10
)

// Metered is a rewritten module.
type Metered struct {
	Bytes []byte
	// Globals are the names under which the rewrite exports the module's mutable
	// globals, so that an instance can be set back.
	Globals []string
	// Changes names what the module can do to an instance that setting back its
	// memory and Globals does not undo.
	Changes []string
}

// unitSize is how many instructions a unit of fuel stands for. From fewUnits on
// it stands for longBody of them: in a loop that is a whole Go function, one pass
// runs a small part.
const (
	unitSize = 32
	fewUnits = 16
	longBody = 128
)

// unitsOf is what a check charges for n instructions that may follow it.
func unitsOf(n int) int { return max(min(1+n/unitSize, fewUnits), n/longBody) }

// meter is what the rewrite knows of a module.
type meter struct {
	params    []uint32 // of each type
	results   []uint32 // of each type
	signature []uint32 // types of the imported functions
	types     uint32
	imported  uint32   // functions
	functions []uint32 // types of the defined ones
	globals   uint32   // imported and defined
	mutable   []uint32 // globals that are numbers and can change
	exported  []string // their names
	changes   map[string]bool
	walk      walk // used for one body after another
}

// fuel is the index of the global that is added, the last one.
func (m *meter) fuel() uint32 { return m.globals }

// refuel is the index of the import that is added, the last one: the defined
// functions come after it.
func (m *meter) refuel() uint32 { return m.imported }

// shift returns a function's index in the rewritten module.
func (m *meter) shift(index uint32) uint32 {
	if index >= m.imported {
		return index + 1
	}
	return index
}

// functionCount is how many functions there are, imported and defined.
func (m *meter) functionCount() uint32 { return m.imported + uint32(len(m.functions)) }

// callCost is what a call of a function counts beside what the function does.
func (m *meter) callCost(index uint32) int {
	if index < m.imported {
		return importCost + m.typeCost(m.signature[index])
	}
	return m.typeCost(m.functions[index-m.imported])
}

// typeCost is what passing a type's parameters and results counts.
func (m *meter) typeCost(typ uint32) int { return int(m.params[typ] + m.results[typ]) }

// rewriteTables gives every table a limit: the engine has none of its own, and a
// table's entries are not part of the memory that the manifest limits.
func (m *meter) rewriteTables(r *reader) []byte {
	n := r.count(MaxTables, "tables")
	out := appendU32(nil, n)
	for range n {
		typ := r.referenceType()
		least, most := r.limits()
		if least > MaxTable {
			r.fail(ErrTooBig, "a table of %d entries, the limit is %d", least, MaxTable)
		}
		out = append(out, typ, 1)
		if most >= least { // the engine refuses the contrary
			most = min(most, MaxTable)
		}
		out = appendU32(appendU32(out, least), most)
	}
	return out
}

// complete adds the sections that the rewrite needs and the module has not.
func (m *meter) complete(list []section) []section {
	for _, id := range []byte{secType, secImport, secGlobal, secExport} {
		list = withSection(list, id)
	}
	return list
}

func withSection(list []section, id byte) []section {
	at := len(list)
	for i, s := range list {
		if s.id == id {
			return list
		}
		if s.id != secCustom && order[s.id] > order[id] {
			at = i
			break
		}
	}
	out := append([]section{}, list[:at]...)
	out = append(out, section{id: id, payload: []byte{0}})
	return append(out, list[at:]...)
}

// reader makes a reader that knows what may be named.
func (m *meter) reader(b []byte, base int) *reader {
	r := newReader(b, base)
	r.types, r.globals = m.types, m.globals
	return r
}

func (m *meter) rewrite(s section) ([]byte, error) {
	r := m.reader(s.payload, s.at)
	var out []byte
	switch s.id {
	case secType:
		out = appendMore(r, 0x60, 0, 1, 0x7E) // () -> i64
	case secImport:
		entry := appendName(appendName(nil, RefuelModule), RefuelName)
		out = appendMore(r, append(entry, append([]byte{0}, appendU32(nil, m.types)...)...)...)
	case secTable:
		out = m.rewriteTables(r)
	case secGlobal:
		out = m.rewriteGlobals(r)
	case secExport:
		out = m.rewriteExports(r)
	case secStart:
		out = appendU32(nil, m.shift(r.index(m.functionCount(), "function")))
	case secElement:
		out = m.rewriteElements(r)
	case secCode:
		return m.rewriteCode(s)
	case secCustom:
		return m.rewriteCustom(s)
	default:
		return s.payload, nil
	}
	r.end()
	return out, r.err
}

// appendMore returns a list's bytes with one element more at the end.
func appendMore(r *reader, element ...byte) []byte {
	n := r.u32()
	out := appendU32(nil, n+1)
	out = append(out, r.b[r.at:]...)
	r.at = len(r.b)
	return append(out, element...)
}

func (m *meter) rewriteGlobals(r *reader) []byte {
	n := r.u32()
	out := appendU32(nil, n+1)
	m.mutable = m.mutable[:0]
	for i := range n {
		typ, mutable := r.valueType(), r.byte()
		if mutable == 1 {
			if typ >= 0x7C && typ <= 0x7F { // a number of up to 64 bits
				m.mutable = append(m.mutable, m.globals-n+i)
			} else {
				m.changes["global of a vector or reference"] = true
			}
		}
		out = append(out, typ, mutable)
		out = m.constant(r, out)
	}
	return append(out, 0x7E, 1, opI64Const, 0, opEnd) // a mutable i64
}

// constant copies a constant expression, with the indexes of functions shifted.
func (m *meter) constant(r *reader, out []byte) []byte {
	for r.err == nil {
		start := r.at
		op := r.byte()
		if op == opRefFunc {
			out = appendU32(append(out, op), m.shift(r.index(m.functionCount(), "function")))
			continue
		}
		r.immediates(op)
		out = append(out, r.b[start:r.at]...)
		if op == opEnd {
			break
		}
	}
	return out
}

func (m *meter) rewriteExports(r *reader) []byte {
	n := r.count(MaxExports, "exports")
	out := appendU32(nil, n+uint32(len(m.mutable)))
	for range n {
		name := string(r.name())
		if strings.HasPrefix(name, globalPrefix) {
			r.fail(ErrUnsupported, "an export named %q, which is the host's", name)
		}
		out = appendName(out, name)
		kind, index := r.byte(), r.u32()
		switch kind {
		case 0:
			if index >= m.functionCount() {
				r.fail(ErrMalformed, "function %d of %d", index, m.functionCount())
			}
			index = m.shift(index)
		case 3:
			if index >= m.globals {
				r.fail(ErrMalformed, "global %d of %d", index, m.globals)
			}
		}
		out = appendU32(append(out, kind), index)
	}
	for _, index := range m.mutable {
		name := globalPrefix + strconv.Itoa(int(index))
		m.exported = append(m.exported, name)
		out = appendU32(append(appendName(out, name), 3), index)
	}
	return out
}

// globalPrefix begins the names of the exports that the rewrite adds.
const globalPrefix = "_pelton_global_"

// rewriteElements copies the element section in all of its eight forms
// (core specification §5.5.12).
func (m *meter) rewriteElements(r *reader) []byte {
	n := r.count(MaxSegments, "element segments")
	out := appendU32(nil, n)
	for range n {
		flags := r.u32()
		if flags > 7 {
			r.fail(ErrMalformed, "element segment form %d is not one", flags)
			return nil
		}
		out = appendU32(out, flags)
		passive, explicit, expressions := flags&1 != 0, flags&2 != 0, flags&4 != 0
		if !passive {
			if explicit {
				out = appendU32(out, r.u32()) // the table
			}
			out = m.constant(r, out)
		}
		switch {
		case !passive && !explicit:
		case expressions:
			out = append(out, r.referenceType())
		default:
			kind := r.byte()
			if kind != 0 {
				r.fail(ErrMalformed, "element kind %d is not one", kind)
			}
			out = append(out, kind)
		}
		count := r.count(MaxElements, "elements")
		out = appendU32(out, count)
		for range count {
			if expressions {
				out = m.constant(r, out)
			} else {
				out = appendU32(out, m.shift(r.index(m.functionCount(), "function")))
			}
		}
		if r.err != nil {
			return nil
		}
	}
	return out
}

func appendU32(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// appendS64 encodes a number that is not negative as signed LEB128.
func appendS64(b []byte, v uint64) []byte {
	for v >= 0x40 {
		b = append(b, byte(v)&0x7f|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

func appendName(b []byte, name string) []byte {
	return append(appendU32(b, uint32(len(name))), name...)
}

// rewriteCustom shifts the functions' names, so that traps still name them. The
// other names are left out: no trap shows them, and the engine believes what they
// claim. Any other custom section is kept as it is.
func (m *meter) rewriteCustom(s section) ([]byte, error) {
	r := newReader(s.payload, s.at)
	name := r.name()
	if r.err != nil {
		return nil, r.err
	}
	if string(name) != "name" {
		return s.payload, nil
	}
	out := appendName(nil, "name")
	for r.left() > 0 && r.err == nil {
		id := r.byte()
		if payload := r.bytes(r.u32()); id == 1 && r.err == nil {
			payload = m.shiftNames(newReader(payload, 0))
			return append(appendU32(append(out, 1), uint32(len(payload))), payload...), nil
		}
	}
	return out, nil
}

func (m *meter) shiftNames(r *reader) []byte {
	n := r.count(MaxFunctions, "names")
	out := appendU32(nil, n)
	for range n {
		out = appendU32(out, m.shift(r.u32()))
		out = appendName(out, string(r.name()))
	}
	if r.err != nil {
		return []byte{0}
	}
	return out
}
