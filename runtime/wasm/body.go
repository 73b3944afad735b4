package wasm

import (
	"fmt"
	"slices"
)

// rewriteCode rewrites every function's body.
func (m *meter) rewriteCode(s section) ([]byte, error) {
	bodies, err := m.bodies(s)
	if err != nil {
		return nil, err
	}
	graph := newGraph(m.imported, bodies)
	out := make([]byte, 0, len(s.payload)+len(s.payload)/8)
	out = appendU32(out, uint32(len(bodies)))
	var scratch []byte
	for i := range bodies {
		rewritten := m.rewriteBody(&bodies[i], graph.plan(i), scratch[:0])
		scratch = rewritten
		if len(out)+len(rewritten) > maxGrowth*len(s.payload)+maxGrowthMore {
			return nil, fmt.Errorf("%w: it has so many branches that to check them would make it %d times as large", ErrTooBig, maxGrowth)
		}
		out = appendU32(out, uint32(len(rewritten)))
		out = append(out, rewritten...)
	}
	return out, nil
}

// bodies reads the code section: every body is walked over once.
func (m *meter) bodies(s section) ([]body, error) {
	r := newReader(s.payload, s.at)
	n := r.count(MaxFunctions, "bodies")
	if int(n) != len(m.functions) && r.err == nil {
		return nil, fmt.Errorf("%w: %d function bodies for %d functions", ErrMalformed, n, len(m.functions))
	}
	bodies := make([]body, 0, n)
	m.walk.edits = make([]edit, 0, len(s.payload)/16)
	for i := range n {
		size := r.u32()
		if size > MaxBody {
			r.fail(ErrTooBig, "function %d has %d bytes, the limit is %d", i, size, MaxBody)
		}
		b := body{at: r.offset(), bytes: r.bytes(size), params: int(m.params[m.functions[i]])}
		if r.err != nil {
			return nil, r.err
		}
		if err := m.inspect(&b); err != nil {
			return nil, fmt.Errorf("function %d: %w", i, err)
		}
		bodies = append(bodies, b)
	}
	m.walk = walk{}
	r.end()
	return bodies, r.err
}

// body is a function's code with what a walk over it finds out.
type body struct {
	bytes    []byte
	at       int // in the module
	params   int
	declared int    // bytes of the declarations of locals
	locals   int    // parameters included
	bulk     bool   // has an instruction that is charged by its length
	indirect bool   // calls what is not known
	size     int    // instructions
	loops    []loop // in the order of their heads
	edits    []edit // in order
	calls    []site
}

// edit is a place where the rewritten body differs.
type edit struct {
	at   int32  // in the body
	n    uint32 // the function, or the loop
	away uint8  // bytes that are taken away
	kind editKind
}

type editKind uint8

const (
	editFunction editKind = iota // a function's index is shifted
	editBack                     // a branch back to a loop is checked
	editLength                   // a length is charged
)

// loop is one loop of a body.
type loop struct {
	parent int // the loop around it, -1 for none
	size   int // instructions, inner loops included
}

// site is a call of a known function.
type site struct {
	function uint32
	loop     int // the innermost that it is in, -1 for none
}

// counts reports whether the body has any check.
func (b *body) counts(p plan) bool {
	return p.entry > 0 || slices.ContainsFunc(b.edits, func(e edit) bool { return e.kind != editFunction })
}

func (m *meter) rewriteBody(b *body, p plan, out []byte) []byte {
	c := coder{meter: m, length: uint32(b.locals), count: uint32(b.locals)}
	if b.bulk {
		c.count++
	}
	out = b.declare(out, b.counts(p))
	if p.entry > 0 {
		out = c.check(out, p.entry)
	}
	at := b.declared
	for _, e := range b.edits {
		out = append(out, b.bytes[at:e.at]...)
		switch at = int(e.at) + int(e.away); e.kind {
		case editFunction:
			out = appendU32(out, m.shift(e.n))
		case editBack:
			out = c.check(out, p.loops[e.n])
		case editLength:
			out = c.charge(out)
		}
	}
	return append(out, b.bytes[at:]...)
}

func isBulk(sub uint32) bool {
	switch sub {
	case miscMemoryInit, miscMemoryCopy, miscMemoryFill, miscTableInit, miscTableCopy, miscTableGrow, miscTableFill:
		return true
	}
	return false
}

// inspect walks over a body once: it finds out about it and checks its
// structure.
func (m *meter) inspect(b *body) error {
	r := m.reader(b.bytes, b.at)
	b.locals = b.params
	for range r.count(MaxLocals, "local declarations") {
		n := r.u32()
		r.valueType()
		if b.locals += int(n); b.locals > MaxLocals || n > MaxLocals {
			r.fail(ErrTooBig, "%d locals, the limit is %d", b.locals, MaxLocals)
			return r.err
		}
	}
	b.declared = r.at
	w := &m.walk
	*w = walk{meter: m, reader: r, body: b, inner: -1, open: w.open[:0], edits: w.edits}
	b.edits = w.edits[len(w.edits):]
	w.push(-1)
	for r.err == nil && len(w.open) > 0 {
		w.step()
	}
	if r.err == nil && r.left() > 0 {
		r.fail(ErrMalformed, "%d bytes follow the end of a function", r.left())
	}
	if n := len(w.edits) + len(b.edits); n <= cap(w.edits) { // they stand in the room
		w.edits = w.edits[:n]
		b.edits = slices.Clip(b.edits)
	}
	for i := len(b.loops) - 1; i >= 0; i-- {
		if l := b.loops[i]; l.parent >= 0 {
			b.loops[l.parent].size += l.size
		}
	}
	return r.err
}

// note remembers what cannot be set back.
func (m *meter) note(op byte, sub uint32) {
	switch {
	case op == opTableSet:
		m.changes["table.set"] = true
	case op == opMisc && int(sub) < len(lasting):
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
// has lengths to charge, and one i64 for one that counts fuel.
func (b *body) declare(out []byte, counts bool) []byte {
	r := newReader(b.bytes, 0)
	n := r.u32()
	rest := b.bytes[r.at:b.declared]
	var more []byte
	if b.bulk {
		n, more = n+1, append(more, 1, 0x7F)
	}
	if counts {
		n, more = n+1, append(more, 1, 0x7E)
	}
	return append(append(appendU32(out, n), rest...), more...)
}

// coder writes the instructions of the checks.
type coder struct {
	meter  *meter
	length uint32 // the local that holds a length
	count  uint32 // the local that holds the fuel: reading the global again costs
}

// check takes units off the fuel and calls the host when there is none left. It
// leaves the operand stack as it was.
func (c *coder) check(out []byte, units int) []byte {
	out = appendU32(append(out, opGlobalGet), c.meter.fuel())
	out = appendS64(append(out, opI64Const), uint64(units))
	return c.branch(append(out, opI64Sub))
}

// branch keeps the fuel that is on the stack, and calls the host when it is used
// up.
func (c *coder) branch(out []byte) []byte {
	out = appendU32(append(out, opLocalTee), c.count)
	out = appendU32(append(out, opGlobalSet), c.meter.fuel())
	out = appendU32(append(out, opLocalGet), c.count)
	out = append(out, opI64Const, 0, opI64LtS, opIf, 0x40, opCall)
	out = appendU32(out, c.meter.refuel())
	out = appendU32(append(out, opGlobalSet), c.meter.fuel())
	return append(out, opEnd)
}

// charge takes a unit for every 256 bytes or elements that the instruction to
// come is told to move, and checks; the number lies on the stack and stays there.
func (c *coder) charge(out []byte) []byte {
	out = appendU32(append(out, opLocalTee), c.length)
	out = appendU32(append(out, opGlobalGet), c.meter.fuel())
	out = appendU32(append(out, opLocalGet), c.length)
	return c.branch(append(out, opI64ExtendU, opI64Const, 8, opI64ShrU, opI64Sub))
}
