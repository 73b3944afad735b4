package wasm

// walk is the state of a walk over a body.
//
// It finds the branches that go back to a loop's head, which are where checks are
// needed. One goes through a dispatcher when it sets a local to a number and
// branches to a loop that begins by branching to one of its blocks by that local:
//
//	loop block … block  local.get X  br_table …  end … end …
//	… i32.const N  local.set X  br <the loop>
//
// That is how Go compiles every jump. It goes back only if the block of number N
// lies behind; one that lies ahead has not been closed yet.
type walk struct {
	meter  *meter
	reader *reader
	body   *body

	edits []edit // room for those of bodies to come
	open  []block
	inner int   // the innermost open loop, -1 for none
	made  int32 // blocks so far

	heads    map[int]*dispatcher // by loop
	head     *dispatcher         // the loop that has just begun and may be one
	previous [2]instruction      // the last one first
}

// block is an open block.
type block struct {
	id   int32
	loop int32 // the loop that it is, -1 for others
}

// dispatcher is a loop that begins by branching to one of its blocks.
type dispatcher struct {
	loop   int
	local  uint32
	state  uint8 // of reading its head
	blocks []block
	depths []int // within the open blocks, of each number; the last is for all others
}

// The states of reading a dispatcher's head.
const (
	headBlocks = iota
	headLocal
)

// instruction is what is remembered of one: its opcode and its number.
type instruction struct {
	op byte
	n  uint32
}

func (w *walk) push(loop int) {
	w.open = append(w.open, block{w.made, int32(loop)})
	w.made++
	if len(w.open) > MaxNesting {
		w.reader.fail(ErrTooBig, "blocks are nested deeper than %d", MaxNesting)
	}
}

func (w *walk) step() {
	r, b := w.reader, w.body
	at := r.at
	op := r.byte()
	n, cost := uint32(0), 1
	switch op {
	case opCall, opRefFunc:
		from := r.at
		n = r.index(w.meter.functionCount(), "function")
		w.edit(editFunction, from, r.at, n)
		if op == opCall && r.err == nil {
			b.calls = append(b.calls, site{n, w.inner})
			cost += w.meter.callCost(n)
		}
	case opBr, opBrIf:
		n = r.u32()
		w.back(at, w.branch(op, n))
	case opBrTable:
		w.back(at, w.table())
	case opI32Const:
		r.skipLEB(5)
		if at+1 < r.at { // else it has failed
			n = w.number(r.b[at+1 : r.at])
		}
	case opLocalGet, opLocalSet, opLocalTee:
		n = r.index(uint32(b.locals), "local")
	case opCallIndirect:
		typ := r.index(r.types, "type")
		r.u32()
		b.indirect = true
		if r.err == nil { // it may call any function that is not checked
			cost += smallBody + w.meter.typeCost(typ)
		}
	default:
		sub := r.immediates(op)
		cost = weight(op, sub)
		w.meter.note(op, sub)
		if op == opMisc && isBulk(sub) {
			b.bulk = true
			w.edit(editLength, at, at, 0)
		}
	}
	b.size += cost
	if w.inner >= 0 {
		b.loops[w.inner].size += cost
	}
	w.follow(op, n)
	w.nest(op)
	w.previous[1], w.previous[0] = w.previous[0], instruction{op, n}
}

func (w *walk) edit(kind editKind, at, after int, n uint32) {
	w.body.edits = append(w.body.edits, edit{int32(at), n, uint8(after - at), kind})
}

// back notes that a branch goes back to a loop, if it does.
func (w *walk) back(at, l int) {
	if l >= 0 {
		w.edit(editBack, at, at, uint32(l))
	}
}

// number reads what an i32.const pushes, as a br_table takes it. A form of five
// bytes whose last one is not the number's sign is refused: engines differ about
// it.
func (w *walk) number(b []byte) uint32 {
	var v uint64
	for i, c := range b {
		v |= uint64(c&0x7f) << (7 * i)
	}
	last := b[len(b)-1]
	if len(b) == 5 && last&0x78 != 0 && last&0x78 != 0x78 {
		w.reader.fail(ErrMalformed, "a number of 32 bits in five bytes that are more")
	}
	if last&0x40 != 0 { // negative
		v |= ^uint64(0) << (7 * len(b))
	}
	return uint32(v)
}

// weight is what an instruction counts: about how many simple ones take as long.
func weight(op byte, sub uint32) int {
	switch {
	case op >= 0x6D && op <= 0x70, op >= 0x7F && op <= 0x82: // integer division
		return 16
	case op == 0x91, op == 0x9F, op == 0x95, op == 0xA3: // square roots and division
		return 16
	case op == opMemoryGrow, op == opMisc && sub == miscTableGrow:
		return importCost
	case op == opMisc && sub >= miscMemoryInit: // their lengths are charged beside
		return 16
	}
	return 1
}

// importCost is what a call of the host counts, whatever it does.
const importCost = 256

// nest follows the beginnings and ends of blocks.
func (w *walk) nest(op byte) {
	switch op {
	case opLoop:
		w.body.loops = append(w.body.loops, loop{parent: w.inner})
		w.inner = len(w.body.loops) - 1
		w.push(w.inner)
		w.head = &dispatcher{loop: w.inner}
	case opBlock, opIf:
		w.push(-1)
	case opEnd:
		if l := int(w.open[len(w.open)-1].loop); l >= 0 {
			w.inner = w.body.loops[l].parent
		}
		w.open = w.open[:len(w.open)-1]
	}
}

// follow reads the head of a loop that may be a dispatcher.
func (w *walk) follow(op byte, n uint32) {
	switch h := w.head; {
	case h == nil:
	case op == opBlock && h.state == headBlocks:
	case op == opLocalGet && h.state == headBlocks:
		h.local, h.state = n, headLocal
	case op == opBrTable && h.state == headLocal:
		if w.heads == nil {
			w.heads = map[int]*dispatcher{}
		}
		w.heads[h.loop] = h
		w.head = nil
	default:
		w.head = nil
	}
}

// table reads the targets of a br_table, and returns the largest loop that one
// goes back to, -1 for none.
func (w *walk) table() int {
	r := w.reader
	n := r.count(MaxTargets, "branch targets")
	keep := w.head != nil && w.head.state == headLocal
	back := -1
	for range n + 1 {
		depth := r.u32()
		if l := w.branch(opBrTable, depth); l >= 0 && (back < 0 || l < back) {
			back = l // the outer one comes first
		}
		if r.err != nil {
			return -1
		}
		if keep {
			w.head.blocks = append(w.head.blocks, w.open[len(w.open)-1-int(depth)])
			w.head.depths = append(w.head.depths, len(w.open)-1-int(depth))
		}
	}
	return back
}

// branch returns the loop that a branch goes back to, -1 for none.
func (w *walk) branch(op byte, depth uint32) int {
	if uint64(depth) >= uint64(len(w.open)) {
		w.reader.fail(ErrMalformed, "a branch out of %d blocks of %d", depth+1, len(w.open))
		return -1
	}
	l := int(w.open[len(w.open)-1-int(depth)].loop)
	if l >= 0 && op == opBr && w.ahead(l) {
		return -1
	}
	return l
}

// ahead reports whether a branch to a loop that follows now goes through its
// dispatcher to a block that lies ahead.
func (w *walk) ahead(l int) bool {
	h := w.heads[l]
	set, number := w.previous[0], w.previous[1]
	if h == nil || set.op != opLocalSet || set.n != h.local || number.op != opI32Const {
		return false
	}
	i := min(int(number.n), len(h.blocks)-1) // the last one is for all numbers beyond
	target, depth := h.blocks[i], h.depths[i]
	return target.loop < 0 && depth < len(w.open) && w.open[depth] == target
}
