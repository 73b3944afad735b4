package wasm

// graph says which functions call which, to find where checks are needed.
//
// Every cycle of calls must hold a check, and so must whatever calls what is not
// known. A function that is in no cycle, calls only known ones, and does little
// in one pass, those without a check that it calls included, needs none at its
// entry: whoever calls it is charged for it.
type graph struct {
	imported uint32
	bodies   []body
	states   []state
}

// state is what is known of a function.
type state struct {
	visit   uint8
	checked bool
	cost    int // instructions that its callers are charged for
}

const (
	unseen = iota
	open
	done
)

// plan is what each check of a function charges, in units; 0 is no check.
type plan struct {
	entry int
	loops []int
}

// smallBody is how many instructions a function may do without a check at its
// entry, those of the functions that it calls without one included.
const smallBody = 16 * unitSize

func newGraph(imported uint32, bodies []body) *graph {
	g := &graph{imported: imported, bodies: bodies, states: make([]state, len(bodies))}
	for i := range bodies {
		g.visit(i)
	}
	return g
}

// frame is a function whose calls are being visited.
type frame struct{ function, next int }

// visit settles a function after those that it calls. The stack is our own: the
// depth of calls is the module's to choose.
func (g *graph) visit(root int) {
	if g.states[root].visit != unseen {
		return
	}
	stack := []frame{{root, 0}}
	g.states[root].visit = open
	for len(stack) > 0 {
		f := &stack[len(stack)-1]
		calls := g.bodies[f.function].calls
		if f.next == len(calls) {
			g.settle(f.function)
			stack = stack[:len(stack)-1]
			continue
		}
		callee := g.defined(calls[f.next].function)
		f.next++
		switch {
		case callee < 0:
		case g.states[callee].visit == unseen:
			g.states[callee].visit = open
			stack = append(stack, frame{callee, 0})
		case g.states[callee].visit == open:
			g.states[callee].checked = true // it closes a cycle
		}
	}
}

// defined returns the body of a function, -1 for an import or one that is not
// there.
func (g *graph) defined(function uint32) int {
	if function < g.imported || uint64(function-g.imported) >= uint64(len(g.bodies)) {
		return -1
	}
	return int(function - g.imported)
}

// settle decides about a function when those that it calls are settled.
func (g *graph) settle(i int) {
	b, s := &g.bodies[i], &g.states[i]
	s.cost = b.size
	for _, c := range b.calls {
		s.cost += g.charge(c)
	}
	s.checked = s.checked || b.indirect || s.cost > smallBody
	s.visit = done
}

// charge is what a call adds to the cost of its caller.
func (g *graph) charge(c site) int {
	i := g.defined(c.function)
	if i < 0 || g.states[i].checked {
		return 0
	}
	return g.states[i].cost
}

// plan returns the checks of a function: of its entry, and of what goes back to
// each of its loops.
func (g *graph) plan(i int) plan {
	b, s := &g.bodies[i], &g.states[i]
	p := plan{loops: make([]int, len(b.loops))}
	for _, c := range b.calls {
		if c.loop >= 0 {
			p.loops[c.loop] += g.charge(c)
		}
	}
	for n := len(p.loops) - 1; n >= 0; n-- { // inner ones stand behind
		if parent := b.loops[n].parent; parent >= 0 {
			p.loops[parent] += p.loops[n]
		}
		p.loops[n] = unitsOf(p.loops[n] + b.loops[n].size)
	}
	if s.checked {
		p.entry = unitsOf(s.cost)
	}
	return p
}
