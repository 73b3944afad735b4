package wasm

import (
	"errors"
	"fmt"
)

// Structural limits. Engines of browsers have the same or similar ones
// (WebAssembly JavaScript Interface, Implementation-defined Limits).
const (
	MaxLocals    = 50_000  // of one function
	MaxBody      = 1 << 20 // bytes of one function
	MaxParams    = 1_000   // of one type, and as many results
	MaxNesting   = 10_000  // blocks within blocks
	MaxTargets   = 65_520  // of one br_table
	MaxTypes     = 100_000
	MaxFunctions = 1_000_000
	MaxImports   = 1_000
	MaxExports   = 10_000
	MaxGlobals   = 10_000
	MaxSegments  = 100_000    // of data, and as many of elements
	MaxElements  = 10_000_000 // of one segment
	MaxTables    = 16
	MaxTable     = 1_000_000 // entries of one table, at first and grown
	MaxMemory    = 32_768    // pages that a memory may begin with: 2 GiB
	MaxCustom    = 32 << 20  // bytes of all custom sections
)

// The ways in which a module is refused.
var (
	// ErrMalformed says that the bytes are not a wasm module.
	ErrMalformed = errors.New("malformed module")
	// ErrTooBig says that a structural limit is exceeded.
	ErrTooBig = errors.New("module exceeds a structural limit")
	// ErrUnsupported says that the module uses a feature beyond core wasm 2.0.
	ErrUnsupported = errors.New("module uses an unsupported feature")
)

// reader walks over bytes. After a fault every read returns zero; err tells the
// first one.
type reader struct {
	b    []byte
	at   int // within the module, for errors
	base int // of b within the module
	err  error

	// What instructions may name: the rewrite adds a type and a global at the end
	// of their lists, and no module may reach those.
	types, globals uint32
}

func newReader(b []byte, base int) *reader { return &reader{b: b, base: base} }

func (r *reader) offset() int { return r.base + r.at }
func (r *reader) left() int   { return len(r.b) - r.at }

func (r *reader) fail(kind error, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w at offset %d: %s", kind, r.offset(), fmt.Sprintf(format, args...))
	}
	r.at = len(r.b)
}

func (r *reader) byte() byte {
	if r.left() < 1 {
		r.fail(ErrMalformed, "it ends too early")
		return 0
	}
	r.at++
	return r.b[r.at-1]
}

func (r *reader) bytes(n uint32) []byte {
	if uint64(n) > uint64(r.left()) {
		r.fail(ErrMalformed, "%d bytes are claimed and %d are left", n, r.left())
		return nil
	}
	b := r.b[r.at : r.at+int(n)]
	r.at += int(n)
	return b
}

// u32 reads an unsigned LEB128 number of up to 32 bits.
func (r *reader) u32() uint32 {
	if r.at < len(r.b) && r.b[r.at] < 0x80 { // most are short
		r.at++
		return uint32(r.b[r.at-1])
	}
	return r.longU32()
}

func (r *reader) longU32() uint32 {
	var v uint64
	for shift := 0; shift < 35; shift += 7 {
		b := r.byte()
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			if v > 0xFFFFFFFF {
				r.fail(ErrMalformed, "a number is larger than 32 bits")
				return 0
			}
			return uint32(v)
		}
	}
	r.fail(ErrMalformed, "a number is longer than 5 bytes")
	return 0
}

// skipLEB skips a LEB128 number of up to n bytes.
func (r *reader) skipLEB(n int) {
	for range n {
		if r.byte() < 0x80 {
			return
		}
	}
	r.fail(ErrMalformed, "a number is longer than %d bytes", n)
}

// count reads the length of a list whose elements have at least one byte each.
func (r *reader) count(limit uint32, what string) uint32 {
	n := r.u32()
	switch {
	case uint64(n) > uint64(r.left()):
		r.fail(ErrMalformed, "%d %s are claimed and %d bytes are left", n, what, r.left())
		return 0
	case n > limit:
		r.fail(ErrTooBig, "%d %s, the limit is %d", n, what, limit)
		return 0
	}
	return n
}

// index reads the index of something of which there are n.
func (r *reader) index(n uint32, what string) uint32 {
	i := r.u32()
	if i >= n && r.err == nil {
		r.fail(ErrMalformed, "%s %d of %d", what, i, n)
	}
	return i
}

// blockType skips the type of a block: 0x40, a value type, or a type's index as
// a signed number of 33 bits.
func (r *reader) blockType() {
	first := r.at
	if b := r.byte(); b == 0x40 {
		return
	} else if b&0xC0 == 0x40 { // negative in one byte: a value type
		r.at = first
		r.valueType()
		return
	}
	r.at = first
	r.skipLEB(5)
	if r.err != nil {
		return
	}
	var v uint64
	for i, b := range r.b[first:r.at] {
		v |= uint64(b&0x7f) << (7 * i)
	}
	if last := r.b[r.at-1]; last&0x40 != 0 || v >= uint64(r.types) {
		r.fail(ErrMalformed, "block type %d of %d", v, r.types)
	}
}

// valueType reads one of the types of core wasm 2.0, a byte each. Types that
// have more bytes would be read differently by the engine.
func (r *reader) valueType() byte {
	switch b := r.byte(); b {
	case 0x7F, 0x7E, 0x7D, 0x7C, 0x7B, 0x70, 0x6F:
		return b
	default:
		r.fail(ErrUnsupported, "value type 0x%02x", b)
		return 0
	}
}

func (r *reader) referenceType() byte {
	b := r.valueType()
	if b != 0x70 && b != 0x6F && r.err == nil {
		r.fail(ErrMalformed, "0x%02x is not a type of references", b)
	}
	return b
}

func (r *reader) valueTypes(n uint32) {
	for range n {
		r.valueType()
	}
}

// end refuses what follows the end of a section.
func (r *reader) end() {
	if r.err == nil && r.left() > 0 {
		r.fail(ErrMalformed, "%d bytes follow the end of the section", r.left())
	}
}

func (r *reader) name() []byte { return r.bytes(r.u32()) }

// section is one section of a module. payload includes nothing of its header.
type section struct {
	id      byte
	at      int // of the payload
	payload []byte
}

// The ids of sections.
const (
	secCustom    = 0
	secType      = 1
	secImport    = 2
	secFunction  = 3
	secTable     = 4
	secMemory    = 5
	secGlobal    = 6
	secExport    = 7
	secStart     = 8
	secElement   = 9
	secCode      = 10
	secData      = 11
	secDataCount = 12
)

// order is where each section stands: data count comes before code.
var order = [...]int{secType: 1, secImport: 2, secFunction: 3, secTable: 4, secMemory: 5, secGlobal: 6, secExport: 7, secStart: 8, secElement: 9, secDataCount: 10, secCode: 11, secData: 12}

// sections splits a module.
func sections(module []byte) ([]section, error) {
	if len(module) < 8 || string(module[:8]) != "\x00asm\x01\x00\x00\x00" {
		return nil, fmt.Errorf("%w: it does not begin with \\0asm and version 1", ErrMalformed)
	}
	r := newReader(module, 0)
	r.at = 8
	var list []section
	last, custom := 0, 0
	for r.left() > 0 && r.err == nil {
		id := r.byte()
		size := r.u32()
		at := r.offset()
		payload := r.bytes(size)
		if id != secCustom {
			if int(id) >= len(order) {
				if id == 13 {
					r.fail(ErrUnsupported, "exception handling (a tag section)")
				}
				r.fail(ErrMalformed, "section %d is not one", id)
				break
			}
			if order[id] <= last {
				r.fail(ErrMalformed, "section %d is out of order or repeated", id)
				break
			}
			last = order[id]
		} else if custom += len(payload); custom > MaxCustom {
			r.fail(ErrTooBig, "custom sections of %d bytes, the limit is %d", custom, MaxCustom)
		}
		list = append(list, section{id, at, payload})
	}
	return list, r.err
}
