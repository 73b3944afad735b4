package engine

import (
	"encoding/binary"
	"strings"
)

// assembly is a small module for tests: functions in wasm's own words, with the
// exports of the ABI around them.
type assembly struct {
	imports []string // of pelton; their types are the ABI's
	bodies  [][]byte // each () -> (); the last is what pelton_handle calls
	locals  byte     // i32 locals of every body
	start   bool     // the first body is the start function
	globals int      // mutable i64 ones, at 0
	table   bool     // a table of 2 with the first body in both places
	pages   byte     // of memory, 1 when 0
	most    uint32   // pages that the memory may have, 0 for not said
	foreign []string // other imports as module.name, of the types in foreignTypes or () -> ()
}

// foreignTypes are the parameters of functions that return an i32.
var foreignTypes = map[string][]byte{"random_get": {0x7F, 0x7F}, "sched_yield": {}, "fd_write": {0x7F, 0x7F, 0x7F, 0x7F}}

const (
	end       = 0x0B
	opUnreach = 0x00
	typeNone  = 0 // () -> ()
	typeHand  = 1 // (i32, i32, i32) -> i64
)

func leb(b []byte, v uint32) []byte { return binary.AppendUvarint(b, uint64(v)) }

func vector(items ...[]byte) []byte {
	out := leb(nil, uint32(len(items)))
	for _, i := range items {
		out = append(out, i...)
	}
	return out
}

func sectionOf(id byte, payload []byte) []byte {
	return append(leb([]byte{id}, uint32(len(payload))), payload...)
}

func text(s string) []byte { return append(leb(nil, uint32(len(s))), s...) }

func join(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// first is the index of the first body: the imports come before.
func (a *assembly) first() uint32 { return uint32(len(a.imports) + len(a.foreign)) }

func (a *assembly) bytes() []byte {
	types := [][]byte{{0x60, 0, 0}, {0x60, 3, 0x7F, 0x7F, 0x7F, 1, 0x7E}}
	var imports, functions, code [][]byte
	for i, name := range a.imports {
		f := hostFunctions[name]
		types = append(types, join([]byte{0x60}, leb(nil, uint32(len(f.params))), f.params, leb(nil, uint32(len(f.results))), f.results))
		imports = append(imports, join(text(hostModule), text(name), []byte{0}, leb(nil, uint32(2+i))))
	}
	for _, f := range a.foreign {
		module, name, _ := strings.Cut(f, ".")
		typ := uint32(typeNone)
		if params, ok := foreignTypes[name]; ok {
			typ = uint32(len(types))
			types = append(types, join([]byte{0x60}, leb(nil, uint32(len(params))), params, []byte{1, 0x7F}))
		}
		imports = append(imports, join(text(module), text(name), []byte{0}, leb(nil, typ)))
	}
	for _, b := range a.bodies {
		functions = append(functions, []byte{typeNone})
		locals := []byte{0}
		if a.locals > 0 {
			locals = []byte{1, a.locals, 0x7F}
		}
		code = append(code, sized(join(locals, b, []byte{end})))
	}
	functions = append(functions, []byte{typeHand})
	code = append(code, sized(join([]byte{0, 0x10}, leb(nil, a.first()+uint32(len(a.bodies))-1), []byte{0x42, 0, end})))
	handle := a.first() + uint32(len(a.bodies))
	out := []byte("\x00asm\x01\x00\x00\x00")
	out = append(out, sectionOf(1, vector(types...))...)
	out = append(out, sectionOf(2, vector(imports...))...)
	out = append(out, sectionOf(3, vector(functions...))...)
	if a.table {
		out = append(out, sectionOf(4, []byte{1, 0x70, 0, 2})...)
	}
	memory := []byte{1, 0, max(a.pages, 1)}
	if a.most > 0 {
		memory = leb([]byte{1, 1, max(a.pages, 1)}, a.most)
	}
	out = append(out, sectionOf(5, memory)...)
	var globals [][]byte
	for range a.globals {
		globals = append(globals, []byte{0x7E, 1, 0x42, 0, end})
	}
	out = append(out, sectionOf(6, vector(globals...))...)
	out = append(out, sectionOf(7, vector(
		join(text("memory"), []byte{2, 0}),
		join(text(exportVersion), []byte{0}, leb(nil, a.first())),
		join(text(exportHandle), []byte{0}, leb(nil, handle)),
	))...)
	if a.start {
		out = append(out, sectionOf(8, leb(nil, a.first()))...)
	}
	if a.table {
		f := leb(nil, a.first())
		out = append(out, sectionOf(9, join([]byte{1, 0, 0x41, 0, end, 2}, f, f))...)
	}
	return append(out, sectionOf(10, vector(code...))...)
}

func sized(b []byte) []byte { return append(leb(nil, uint32(len(b))), b...) }

// call is the instruction that calls a function by its index.
func callOf(function uint32) []byte { return leb([]byte{0x10}, function) }

// i32c is the instruction that pushes a small number.
func i32c(v byte) []byte { return []byte{0x41, v} }
