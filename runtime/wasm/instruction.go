package wasm

// Opcodes that the rewrite looks at.
const (
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0B
	opBr           = 0x0C
	opBrIf         = 0x0D
	opBrTable      = 0x0E
	opCall         = 0x10
	opCallIndirect = 0x11
	opLocalGet     = 0x20
	opLocalSet     = 0x21
	opLocalTee     = 0x22
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opTableSet     = 0x26
	opMemoryGrow   = 0x40
	opI32Const     = 0x41
	opI64Const     = 0x42
	opI64LtS       = 0x53
	opI64Sub       = 0x7D
	opI64ShrU      = 0x88
	opI64ExtendU   = 0xAD
	opRefFunc      = 0xD2
	opMisc         = 0xFC
	opVector       = 0xFD
)

// The sub-opcodes of opMisc that move as much as an operand says.
const (
	miscMemoryInit = 8
	miscDataDrop   = 9
	miscMemoryCopy = 10
	miscMemoryFill = 11
	miscTableInit  = 12
	miscElemDrop   = 13
	miscTableCopy  = 14
	miscTableGrow  = 15
	miscTableFill  = 17
)

// newer names the opcodes beyond core wasm 2.0 that are known by name.
var newer = map[byte]string{
	0x06: "exception handling (try)", 0x07: "exception handling (catch)", 0x08: "exception handling (throw)", 0x09: "exception handling (rethrow)",
	0x0A: "exception handling (throw_ref)", 0x18: "exception handling (delegate)", 0x19: "exception handling (catch_all)", 0x1F: "exception handling (try_table)",
	0x12: "tail calls (return_call)", 0x13: "tail calls (return_call_indirect)", 0x14: "function references (call_ref)", 0x15: "function references (return_call_ref)",
	0xD3: "garbage collection (ref.eq)", 0xD4: "function references (ref.as_non_null)", 0xD5: "function references (br_on_null)", 0xD6: "function references (br_on_non_null)",
	0xFB: "garbage collection", 0xFE: "threads (atomic instructions)",
}

// immediates skips what follows an opcode, and returns the sub-opcode of the
// two prefixed groups. Functions' indexes (call, ref.func) are left to the
// caller.
func (r *reader) immediates(op byte) (sub uint32) {
	switch {
	case op == opBlock || op == opLoop || op == opIf:
		r.blockType()
	case op == 0x0C || op == 0x0D: // br, br_if
		r.u32()
	case op == 0x0E: // br_table
		for range r.count(MaxTargets, "branch targets") {
			r.u32()
		}
		r.u32()
	case op == opCallIndirect:
		r.index(r.types, "type")
		r.u32()
	case op == opGlobalGet || op == opGlobalSet:
		r.index(r.globals, "global")
	case op == 0x1C: // select with a type
		if n := r.byte(); n != 1 {
			r.fail(ErrMalformed, "select with %d types", n)
		}
		r.valueType()
	case op >= opLocalGet && op <= 0x26: // local, global and table
		r.u32()
	case op >= 0x28 && op <= 0x3E: // loads and stores
		r.memarg()
	case op == 0x3F || op == 0x40: // memory.size, memory.grow
		r.zero()
	case op == 0x41:
		r.skipLEB(5)
	case op == opI64Const:
		r.skipLEB(10)
	case op == 0x43:
		r.bytes(4)
	case op == 0x44:
		r.bytes(8)
	case op == 0xD0: // ref.null
		r.referenceType()
	case op == opMisc:
		return r.misc()
	case op == opVector:
		r.vector()
	case op <= 0x01, op == opElse, op == opEnd, op == 0x0F, op == 0x1A, op == 0x1B, op >= 0x45 && op <= 0xC4, op == 0xD1:
	default:
		if name, ok := newer[op]; ok {
			r.fail(ErrUnsupported, "%s", name)
		} else {
			r.fail(ErrMalformed, "opcode 0x%02x is not one", op)
		}
	}
	return 0
}

func (r *reader) memarg() {
	align := r.u32()
	if align >= 0x40 {
		r.fail(ErrUnsupported, "several memories")
	}
	r.u32()
}

// zero reads the index of the one memory.
func (r *reader) zero() {
	if b := r.byte(); b != 0 {
		r.fail(ErrUnsupported, "several memories")
	}
}

func (r *reader) misc() uint32 {
	sub := r.u32()
	switch {
	case sub <= 7: // saturating conversions
	case sub == miscMemoryInit:
		r.u32()
		r.zero()
	case sub == miscMemoryCopy:
		r.zero()
		r.zero()
	case sub == miscMemoryFill:
		r.zero()
	case sub == miscTableInit, sub == miscTableCopy:
		r.u32()
		r.u32()
	case sub <= 17: // the others have one index
		r.u32()
	default:
		r.fail(ErrMalformed, "opcode 0xFC %d is not one", sub)
	}
	return sub
}

// vector reads a sub-opcode in its shortest form. The engine takes one byte of it
// (and a 1 behind it for a nop), so that any longer form would have it run what
// was not looked at.
func (r *reader) vector() {
	sub := uint32(r.byte())
	if sub >= 0x80 {
		switch second := r.byte(); {
		case second == 0 || second >= 0x80:
			r.fail(ErrMalformed, "opcode 0xFD is followed by a number that is not in its shortest form")
		case second > 1:
			r.fail(ErrUnsupported, "relaxed SIMD (0xFD %d)", sub&0x7f|uint32(second)<<7)
		}
	}
	switch {
	case sub <= 11, sub == 92, sub == 93: // loads and stores
		r.memarg()
	case sub == 12, sub == 13: // constant, shuffle
		r.bytes(16)
	case sub >= 21 && sub <= 34: // lanes
		r.byte()
	case sub >= 84 && sub <= 91: // loads and stores of a lane
		r.memarg()
		r.byte()
	case sub <= 255:
	default:
		r.fail(ErrUnsupported, "relaxed SIMD (0xFD %d)", sub)
	}
}
