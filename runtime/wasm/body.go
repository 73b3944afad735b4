package wasm

import "fmt"

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
		rewritten, err := m.rewriteBody(&bodies[i], graph.plan(i), scratch[:0])
		if err != nil {
			return nil, fmt.Errorf("function %d: %w", i, err)
		}
		scratch = rewritten
		out = appendU32(out, uint32(len(rewritten)))
		out = append(out, rewritten...)
	}
	return out, nil
}

// bodies reads the code section: every body is walked over once.
func (m *meter) bodies(s section) ([]body, error) {
	r := newReader(s.payload, s.at)
	n := r.count(MaxTypes, "bodies")
	if int(n) != len(m.functions) && r.err == nil {
		return nil, fmt.Errorf("%w: %d function bodies for %d functions", ErrMalformed, n, len(m.functions))
	}
	bodies := make([]body, 0, n)
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
	first    bool   // begins with a loop
	outside  int    // instructions outside of loops
	loops    []loop // in the order of their heads
	calls    []site
}

// loop is one loop of a body. One that no branch goes back to is none.
type loop struct {
	parent int // the loop around it, -1 for none
	size   int // instructions, without those of inner loops
	taken  bool
}

// site is a call of a known function.
type site struct {
	function uint32
	loop     int // the innermost that it is in, -1 for none
}

func (m *meter) rewriteBody(b *body, p plan, out []byte) ([]byte, error) {
	out = b.declare(out)
	r := m.reader(b.bytes, b.at)
	r.at = b.declared
	if p.entry > 0 {
		out = m.check(out, p.entry)
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
			out = m.charge(out, uint32(b.locals))
		}
		out = append(out, r.b[start:r.at]...)
		if op == opLoop {
			if p.loops[loops] > 0 {
				out = m.check(out, p.loops[loops])
			}
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
	w := walk{meter: m, reader: r, body: b, open: make([]int, 1, 32), inner: -1, first: true}
	w.open[0] = -1
	for r.err == nil && len(w.open) > 0 {
		w.step()
	}
	if r.err == nil && r.left() > 0 {
		r.fail(ErrMalformed, "%d bytes follow the end of a function", r.left())
	}
	b.settleLoops()
	return r.err
}

// settleLoops counts the instructions of what only looks like a loop to what is
// around it.
func (b *body) settleLoops() {
	b.first = b.first && b.loops[0].taken
	for i := len(b.loops) - 1; i >= 0; i-- {
		l := &b.loops[i]
		switch {
		case l.taken:
		case l.parent < 0:
			b.outside += l.size
		default:
			b.loops[l.parent].size += l.size
		}
	}
	for i := range b.calls {
		for s := &b.calls[i]; s.loop >= 0 && !b.loops[s.loop].taken; {
			s.loop = b.loops[s.loop].parent
		}
	}
}

// walk is the state of a walk over a body.
type walk struct {
	meter  *meter
	reader *reader
	body   *body
	open   []int // for each open block the loop that it is, -1 for others
	inner  int   // the innermost open loop, -1 for none
	first  bool  // nothing but blocks has come
}

func (w *walk) step() {
	r, b := w.reader, w.body
	op := r.byte()
	switch op {
	case opCall:
		b.calls = append(b.calls, site{r.u32(), w.inner})
	case opRefFunc:
		r.u32()
	case opBr, opBrIf:
		w.branch(r.u32())
	case opBrTable:
		for range r.count(MaxBody, "branch targets") {
			w.branch(r.u32())
		}
		w.branch(r.u32())
	default:
		sub := r.immediates(op)
		w.meter.note(op, sub)
		b.bulk = b.bulk || op == opMisc && isBulk(sub)
		b.indirect = b.indirect || op == opCallIndirect
	}
	w.nest(op)
	if w.inner >= 0 {
		b.loops[w.inner].size++
	} else {
		b.outside++
	}
	w.first = w.first && op == opBlock // blocks before the loop cost nothing
}

// branch notes where a branch goes.
func (w *walk) branch(depth uint32) {
	if uint64(depth) >= uint64(len(w.open)) {
		w.reader.fail(ErrMalformed, "a branch out of %d blocks of %d", depth+1, len(w.open))
		return
	}
	if l := w.open[len(w.open)-1-int(depth)]; l >= 0 {
		w.body.loops[l].taken = true
	}
}

// nest follows the beginnings and ends of blocks.
func (w *walk) nest(op byte) {
	switch op {
	case opLoop:
		w.body.first = w.body.first || w.first
		w.open = append(w.open, len(w.body.loops))
		w.body.loops = append(w.body.loops, loop{parent: w.inner})
		w.inner = len(w.body.loops) - 1
	case opBlock, opIf:
		w.open = append(w.open, -1)
	case opEnd:
		if l := w.open[len(w.open)-1]; l >= 0 {
			w.inner = w.body.loops[l].parent
		}
		w.open = w.open[:len(w.open)-1]
	}
	if len(w.open) > MaxNesting {
		w.reader.fail(ErrTooBig, "blocks are nested deeper than %d", MaxNesting)
	}
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
func (b *body) declare(out []byte) []byte {
	if !b.bulk {
		return append(out, b.bytes[:b.declared]...)
	}
	r := newReader(b.bytes, 0)
	n := r.u32()
	out = appendU32(out, n+1)
	out = append(out, b.bytes[r.at:b.declared]...)
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
