package wasm

import "fmt"

// rewriteCode rewrites every function's body.
func (m *meter) rewriteCode(s section) ([]byte, error) {
	r := newReader(s.payload, s.at)
	n := r.count(MaxTypes, "bodies")
	if int(n) != len(m.functions) && r.err == nil {
		return nil, fmt.Errorf("%w: %d function bodies for %d functions", ErrMalformed, n, len(m.functions))
	}
	out := make([]byte, 0, len(s.payload)+len(s.payload)/8)
	out = appendU32(out, n)
	var scratch []byte
	for i := range n {
		size := r.u32()
		if size > MaxBody {
			r.fail(ErrTooBig, "function %d has %d bytes, the limit is %d", i, size, MaxBody)
		}
		at := r.offset()
		body := r.bytes(size)
		if r.err != nil {
			return nil, r.err
		}
		rewritten, err := m.rewriteBody(m.functions[i], body, at, scratch[:0])
		if err != nil {
			return nil, fmt.Errorf("function %d: %w", i, err)
		}
		scratch = rewritten
		out = appendU32(out, uint32(len(rewritten)))
		out = append(out, rewritten...)
	}
	return out, r.err
}

// shape is what a first pass over a body finds out.
type shape struct {
	locals  int   // bytes of the declarations
	count   int   // locals, parameters included
	bulk    bool  // has an instruction that is charged by its length
	calls   bool  // calls others
	loop    bool  // begins with a loop
	units   []int // of each loop in order, then of the entry
	outside int   // instructions outside of loops
}

func (m *meter) rewriteBody(typ uint32, body []byte, at int, out []byte) ([]byte, error) {
	r := m.reader(body, at)
	s := m.inspect(r, typ)
	if r.err != nil {
		return nil, r.err
	}
	out = s.declare(body, out)
	r = m.reader(body, at)
	r.at = s.locals
	if (s.calls || s.outside > shortLeaf) && !s.loop {
		out = m.check(out, s.units[len(s.units)-1])
	}
	loops := 0
	for r.err == nil && r.left() > 0 {
		start := r.at
		op := r.byte()
		switch op {
		case opCall, opRefFunc:
			out = appendU32(append(out, op), m.shift(r.u32()))
			continue
		}
		sub := r.immediates(op)
		if op == opMisc && isBulk(sub) {
			out = m.charge(out, uint32(s.count))
		}
		out = append(out, r.b[start:r.at]...)
		if op == opLoop {
			out = m.check(out, s.units[loops])
			loops++
		}
	}
	return out, r.err
}

func isBulk(sub uint32) bool {
	switch sub {
	case miscMemoryInit, miscMemoryCopy, miscMemoryFill, miscTableInit, miscTableCopy, miscTableGrow, miscTableFill:
		return true
	}
	return false
}

// inspect walks over a body once: it finds its shape and checks its structure.
func (m *meter) inspect(r *reader, typ uint32) shape {
	s := shape{count: int(m.params[typ])}
	for range r.count(MaxLocals, "local declarations") {
		n := r.u32()
		r.valueType()
		if s.count += int(n); s.count > MaxLocals {
			r.fail(ErrTooBig, "%d locals, the limit is %d", s.count, MaxLocals)
			return s
		}
	}
	s.locals = r.at
	open := []int{-1} // for each open block the loop that it is, -1 for others
	sizes := []int{}  // instructions of each loop
	inner := []int{}  // the loops that are open, innermost last
	first := true
	for r.err == nil && len(open) > 0 {
		op := r.byte()
		switch op {
		case opCall:
			r.u32()
			s.calls = true
		case opRefFunc:
			r.u32()
		default:
			sub := r.immediates(op)
			m.note(op, sub)
			s.bulk = s.bulk || op == opMisc && isBulk(sub)
			s.calls = s.calls || op == opCallIndirect
		}
		switch op {
		case opLoop:
			s.loop = s.loop || first
			open = append(open, len(sizes))
			inner = append(inner, len(sizes))
			sizes = append(sizes, 0)
		case opBlock, opIf:
			open = append(open, -1)
		case opEnd:
			if open[len(open)-1] >= 0 {
				inner = inner[:len(inner)-1]
			}
			open = open[:len(open)-1]
		}
		if len(open) > MaxNesting {
			r.fail(ErrTooBig, "blocks are nested deeper than %d", MaxNesting)
		}
		if len(inner) > 0 {
			sizes[inner[len(inner)-1]]++
		} else {
			s.outside++
		}
		first = first && op == opBlock // blocks before the loop cost nothing
	}
	if r.err == nil && r.left() > 0 {
		r.fail(ErrMalformed, "%d bytes follow the end of a function", r.left())
	}
	for _, n := range append(sizes, s.outside) {
		s.units = append(s.units, unitsOf(n))
	}
	return s
}

// note remembers what cannot be set back.
func (m *meter) note(op byte, sub uint32) {
	switch {
	case op == opTableSet:
		m.changes["table.set"] = true
	case op == opMisc && sub >= miscDataDrop:
		if name := lasting[sub]; name != "" {
			m.changes[name] = true
		}
	}
}

// lasting names the instructions of opMisc whose effect is neither in the memory
// nor in a global.
var lasting = [...]string{miscDataDrop: "data.drop", miscTableInit: "table.init", miscElemDrop: "elem.drop",
	miscTableCopy: "table.copy", miscTableGrow: "table.grow", miscTableFill: "table.fill"}

// declare copies the declarations of locals, with one i32 more for a body that
// needs it. Its index is the number of locals that there were.
func (s *shape) declare(body, out []byte) []byte {
	if !s.bulk {
		return append(out, body[:s.locals]...)
	}
	r := newReader(body, 0)
	n := r.u32()
	out = appendU32(out, n+1)
	out = append(out, body[r.at:s.locals]...)
	return append(out, 1, 0x7F)
}

// check takes units off the fuel and calls the host when there is none left. It
// leaves the operand stack as it was.
func (m *meter) check(out []byte, units int) []byte {
	fuel := m.fuel()
	out = appendU32(append(out, opGlobalGet), fuel)
	out = appendS64(append(out, opI64Const), uint64(units))
	out = appendU32(append(out, opI64Sub, opGlobalSet), fuel)
	return m.branch(out)
}

// branch calls the host when the fuel is used up.
func (m *meter) branch(out []byte) []byte {
	fuel := m.fuel()
	out = appendU32(append(out, opGlobalGet), fuel)
	out = append(out, opI64Const, 0, opI64LtS, opIf, 0x40, opCall)
	out = appendU32(out, m.refuel())
	out = appendU32(append(out, opGlobalSet), fuel)
	return append(out, opEnd)
}

// charge takes a unit for every 256 bytes or elements that the instruction to
// come is told to move, and checks; the number lies on the stack and stays there.
func (m *meter) charge(out []byte, local uint32) []byte {
	fuel := m.fuel()
	out = appendU32(append(out, opLocalTee), local)
	out = appendU32(append(out, opGlobalGet), fuel)
	out = appendU32(append(out, opLocalGet), local)
	out = append(out, opI64ExtendU, opI64Const, 8, opI64ShrU, opI64Sub)
	return m.branch(appendU32(append(out, opGlobalSet), fuel))
}
