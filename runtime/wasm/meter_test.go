package wasm

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"
)

// bomb is a module header and one section.
func bomb(id byte, payload ...byte) []byte {
	out := append([]byte("\x00asm\x01\x00\x00\x00"), id)
	return append(appendU32(out, uint32(len(payload))), payload...)
}

// What a few bytes claim costs nothing.
func TestBombs(t *testing.T) {
	many := []byte{0xFF, 0xFF, 0xFF, 0xFF, 0x0F}
	withFunction := func(body ...byte) []byte {
		m := bomb(secType, 1, 0x60, 0, 0)
		m = append(m, bomb(secFunction, 1, 0)[8:]...)
		code := append([]byte{1}, appendU32(nil, uint32(len(body)))...)
		return append(m, bomb(secCode, append(code, body...)...)[8:]...)
	}
	tests := map[string]struct {
		module []byte
		want   error
	}{
		"empty":           {nil, ErrMalformed},
		"text":            {[]byte("hello"), ErrMalformed},
		"header only":     {[]byte("\x00asm\x01\x00\x00\x00"), nil},
		"type count":      {bomb(secType, many...), ErrMalformed},
		"import count":    {bomb(secImport, many...), ErrMalformed},
		"function count":  {bomb(secFunction, many...), ErrMalformed},
		"export count":    {bomb(secExport, many...), ErrMalformed},
		"element count":   {bomb(secElement, many...), ErrMalformed},
		"code count":      {bomb(secCode, many...), ErrMalformed},
		"data count":      {bomb(secData, many...), ErrMalformed},
		"section size":    {append([]byte("\x00asm\x01\x00\x00\x00\x01"), many...), ErrMalformed},
		"section twice":   {append(bomb(secType, 0), bomb(secType, 0)[8:]...), ErrMalformed},
		"out of order":    {append(bomb(secExport, 0), bomb(secType, 0)[8:]...), ErrMalformed},
		"unknown section": {bomb(77), ErrMalformed},
		"locals":          {withFunction(1, 0x80, 0xC2, 0xD7, 0x2F, 0x7F, opEnd), ErrTooBig}, // 100,000,000
		"tail call":       {withFunction(0, 0x12, 0, opEnd), ErrUnsupported},
		"atomics":         {withFunction(0, 0xFE, 0, opEnd), ErrUnsupported},
		"exceptions":      {bomb(13, 0), ErrUnsupported},
		// What the engine would read in another way than the rewrite: a loop could
		// be hidden there.
		"long vector opcode":         {withFunction(0, 0xFD, 0x8C, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x1A, opEnd), ErrMalformed},
		"typed reference":            {withFunction(0, opBlock, 0x63, 0x1C, 0x41, 0, opEnd, opEnd), ErrUnsupported},
		"local of a typed reference": {withFunction(1, 1, 0x64, 0x70, opEnd), ErrUnsupported},
		"two memories":               {withFunction(0, 0x3F, 1, 0x1A, opEnd), ErrUnsupported},
		"many tables":                {bomb(secTable, append([]byte{17}, make([]byte, 51)...)...), ErrTooBig},
		"huge table":                 {bomb(secTable, 1, 0x70, 0, 0x80, 0x80, 0x80, 0x40), ErrTooBig},
		"huge memory":                {bomb(secMemory, 1, 0, 0x80, 0x80, 0x04), ErrTooBig},
		"many imports":               {bomb(secImport, append([]byte{0xE9, 0x07}, make([]byte, 8000)...)...), ErrTooBig},
		"many exports":               {bomb(secExport, append([]byte{0x91, 0x4E}, make([]byte, 80_000)...)...), ErrTooBig},
		"many params":                {bomb(secType, append([]byte{1, 0x60, 0xE9, 0x07}, make([]byte, 2000)...)...), ErrTooBig},
		"deep blocks":                {withFunction(append([]byte{0}, bytes.Repeat([]byte{opBlock, 0x40}, MaxNesting+1)...)...), ErrTooBig},
		"many targets":               {withFunction(append([]byte{0, opBrTable, 0xF0, 0xFF, 0x7F}, make([]byte, 3<<20)...)...), ErrTooBig},
		// What the engine would take from claims of these.
		"names that claim":         {append([]byte("\x00asm\x01\x00\x00\x00"), 0, 0x1D, 4, 'n', 'a', 'm', 'e', 0, 0x0C, 0, 1, 9, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0, 0, 0, 0, 9, 8, 0, 0, 0, 0, 0, 0, 0, 0), nil},
		"data that claims":         {bomb(secData, 1, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F), ErrMalformed},
		"custom that claims":       {append([]byte("\x00asm\x01\x00\x00\x00"), 0, 5, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F), ErrMalformed},
		"a number in disguise":     {withFunction(1, 1, 0x7F, opBlock, 0x40, opLoop, 0x40, opBlock, 0x40, opLocalGet, 0, opBrTable, 1, 0, 2, opEnd, opI32Const, 0x80, 0x80, 0x80, 0x80, 0x40, opLocalSet, 0, opBr, 0, opEnd, opEnd, opEnd), ErrMalformed},
		"a function that wraps":    {withFunction(0, opCall, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, opEnd), ErrMalformed},
		"a local of the host's":    {withFunction(0, opLocalGet, 0, 0x1A, opEnd), ErrMalformed},
		"nothing but branches":     {withFunction(append(append([]byte{0, opLoop, 0x40}, bytes.Repeat([]byte{opBr, 0}, 100_000)...), opEnd, opEnd)...), ErrTooBig},
		"branch out of everything": {withFunction(0, opBr, 1, opEnd), ErrMalformed},
		"gc type":                  {bomb(secType, 1, 0x5F, 0), ErrUnsupported},
		"no end":                   {withFunction(0, opBlock, 0x40), ErrMalformed},
		"after the end":            {withFunction(0, opEnd, opEnd), ErrMalformed},
		"a function":               {withFunction(0, opLoop, 0x40, opEnd, opEnd), nil},
	}
	for name, tt := range tests {
		if _, err := Meter(tt.module); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if tt.want == nil {
			continue
		}
		took, allocated := time.Hour, uint64(1<<63)
		for range 5 { // the least of them: others run beside
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			Meter(tt.module)
			took = min(took, time.Since(start))
			runtime.ReadMemStats(&after)
			allocated = min(allocated, after.TotalAlloc-before.TotalAlloc)
		}
		if took > 5*time.Millisecond+time.Duration(100*len(tt.module)) && !underRace || allocated > uint64(1<<20+100*len(tt.module)) {
			t.Errorf("%s took %s and %d bytes", name, took, allocated)
		}
	}
}

// A real module, cut off or changed anywhere, claims no more memory than it has.
func TestMutated(t *testing.T) {
	b, err := os.ReadFile("../../bin/testers/nowork.wasm")
	if err != nil {
		t.Fatalf("%v; run make testers", err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		m := slices.Clone(b)
		for range 1 + random.IntN(4) {
			m[8+random.IntN(len(m)-8)] = byte(random.Uint32())
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		Meter(m)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > uint64(20*len(b)) {
			t.Errorf("%d bytes were allocated for a module of %d", took, len(b))
		}
	}
}

// whole is a small module with a bit of everything: a function that loops, calls
// itself and fills memory, exported, with a table that holds it.
func whole() []byte {
	m := bomb(secType, 1, 0x60, 1, 0x7F, 0)
	for _, s := range [][]byte{
		bomb(secFunction, 1, 0), bomb(secTable, 1, 0x70, 0, 1), bomb(secMemory, 1, 0, 1), bomb(secGlobal, 1, 0x70, 0, opRefFunc, 0, opEnd),
		bomb(secExport, 1, 1, 'f', 0, 0), bomb(secElement, 1, 0, 0x41, 0, opEnd, 1, 0),
		bomb(secCode, 1, 22, 0, opLoop, 0x40, 0x41, 0, 0x41, 0, 0x41, 8, opMisc, miscMemoryFill, 0, opLocalGet, 0, opCall, 0, 0x41, 0, 0x0D, 0, opEnd, opEnd),
	} {
		m = append(m, s[8:]...)
	}
	return m
}

// The indexes of functions are shifted wherever they stand, fuel is checked before
// a branch back, and a length is charged before it is filled.
func TestRewrite(t *testing.T) {
	out, err := Meter(whole())
	if err != nil {
		t.Fatal(err)
	}
	list, err := sections(out.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		var want []byte
		switch s.id {
		case secExport:
			want = []byte{1, 1, 'f', 0, 1}
		case secElement:
			want = []byte{1, 0, 0x41, 0, opEnd, 1, 1}
		case secGlobal:
			want = []byte{2, 0x70, 0, opRefFunc, 1, opEnd, 0x7E, 1, opI64Const, 0, opEnd}
		case secCode:
			branch := []byte{opLocalTee, 2, opGlobalSet, 1, opLocalGet, 2, opI64Const, 0, opI64LtS, opIf, 0x40, opCall, 0, opGlobalSet, 1, opEnd}
			check := append([]byte{opGlobalGet, 1, opI64Const, 1, opI64Sub}, branch...)
			charge := append([]byte{opLocalTee, 1, opGlobalGet, 1, opLocalGet, 1, opI64ExtendU, opI64Const, 8, opI64ShrU, opI64Sub}, branch...)
			check, charge = append(check, opBrIf, 0), append(charge, opMisc, miscMemoryFill, 0)
			if !bytes.Contains(s.payload, check) || !bytes.Contains(s.payload, charge) || !bytes.Contains(s.payload, []byte{opLocalGet, 0, opCall, 1}) {
				t.Errorf("the code is % x", s.payload)
			}
			continue
		default:
			continue
		}
		if !bytes.Equal(s.payload, want) {
			t.Errorf("section %d is % x, want % x", s.id, s.payload, want)
		}
	}
}

// inspected walks over one body of a module without imports.
func inspected(t *testing.T, code ...byte) *body {
	t.Helper()
	b := &body{bytes: append([]byte{1, 4, 0x7F}, code...)} // four i32 locals
	m := &meter{changes: map[string]bool{}, types: 1, params: []uint32{0}}
	if err := m.inspect(b); err != nil {
		t.Fatal(err)
	}
	return b
}

// Which branches go back: what Go makes of a jump does only if its block is behind.
func TestBranches(t *testing.T) {
	// loop block block block  local.get 0  br_table 0 1 2  end A end B end C
	head := []byte{opLoop, 0x40, opBlock, 0x40, opBlock, 0x40, opBlock, 0x40, opLocalGet, 0, opBrTable, 2, 0, 1, 2}
	jump := func(n, local, depth byte) []byte { return []byte{opI32Const, n, opLocalSet, local, opBr, depth} }
	build := func(a, b, c []byte) []byte {
		out := append(append([]byte{}, head...), opEnd)
		out = append(append(out, a...), opEnd)
		out = append(append(out, b...), opEnd)
		return append(append(out, c...), opEnd, opEnd)
	}
	tests := []struct {
		name string
		code []byte
		want []int
	}{
		{"a plain loop", []byte{opLoop, 0x40, opBr, 0, opEnd, opEnd}, []int{0}},
		{"out of a block", []byte{opBlock, 0x40, opBr, 0, opEnd, opEnd}, nil},
		{"out of a loop", []byte{opBlock, 0x40, opLoop, 0x40, opBr, 1, opEnd, opEnd, opEnd}, nil},
		{"ahead, from A to C", build(jump(2, 0, 2), nil, nil), nil},
		{"ahead, from A to B", build(jump(1, 0, 2), nil, nil), nil},
		{"to itself, in A", build(jump(0, 0, 2), nil, nil), []int{0}},
		{"back, from B to A", build(nil, jump(0, 0, 1), nil), []int{0}},
		{"back, from C to B", build(nil, nil, jump(1, 0, 0)), []int{0}},
		{"a number beyond is the last", build(jump(9, 0, 2), nil, nil), nil},
		{"a number beyond, from C", build(nil, nil, jump(9, 0, 0)), []int{0}},
		{"a negative number, from C", build(nil, nil, jump(0x7F, 0, 0)), []int{0}},
		{"by another local", build(jump(2, 1, 2), nil, nil), []int{0}},
		{"with something between", build([]byte{opI32Const, 2, opLocalSet, 0, 0x01, opBr, 2}, nil, nil), []int{0}},
		{"a number that is not known", build([]byte{opLocalGet, 1, opLocalSet, 0, opBr, 2}, nil, nil), []int{0}},
		{"only if", build([]byte{opI32Const, 2, opLocalSet, 0, opBrIf, 2}, nil, nil), []int{0}},
		{"by a table", build([]byte{opI32Const, 2, opLocalSet, 0, opBrTable, 0, 2}, nil, nil), []int{0}},
		{"no dispatcher", []byte{opLoop, 0x40, 0x01, opBlock, 0x40, opLocalGet, 0, opBrTable, 0, 0, opEnd, opI32Const, 0, opLocalSet, 0, opBr, 0, opEnd, opEnd}, []int{0}},
		// The block that was number 2 is closed; another stands in its place.
		{"into another block", build(nil, nil, []byte{opBlock, 0x40, opI32Const, 2, opLocalSet, 0, opBr, 1, opEnd}), []int{0}},
		{"a table that goes to its loop", []byte{opLoop, 0x40, opBlock, 0x40, opLocalGet, 0, opBrTable, 1, 0, 1, opEnd, opI32Const, 1, opLocalSet, 0, opBr, 0, opEnd, opEnd}, []int{0, 0}},
	}
	for _, tt := range tests {
		var got []int
		for _, e := range inspected(t, tt.code...).edits {
			got = append(got, int(e.n))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: goes back to %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A nest of loops with many calls in it is planned in time that its size has.
func TestDeepPlan(t *testing.T) {
	const depth, calls = 5_000, 200_000
	code := []byte{0}
	code = append(code, bytes.Repeat([]byte{opLoop, 0x40}, depth)...)
	code = append(code, bytes.Repeat([]byte{opCall, 1}, calls)...)
	code = append(code, bytes.Repeat([]byte{opEnd}, depth+1)...)
	m := bomb(secType, 1, 0x60, 0, 0)
	m = append(m, bomb(secFunction, 2, 0, 0)[8:]...)
	bodies := append([]byte{2}, appendU32(nil, uint32(len(code)))...)
	bodies = append(append(bodies, code...), 2, 0, opEnd)
	m = append(m, bomb(secCode, bodies...)[8:]...)
	start := time.Now()
	if _, err := Meter(m); err != nil || time.Since(start) > 2*time.Second {
		t.Errorf("%v after %s", err, time.Since(start))
	}
}

// Which entries are checked.
func TestGraph(t *testing.T) {
	calls := func(size int, functions ...uint32) body {
		b := body{size: size}
		for _, f := range functions {
			b.calls = append(b.calls, site{f, -1})
		}
		return b
	}
	chain := []body{}
	for i := range 50 { // each calls the next one twice: 2^50 calls
		chain = append(chain, calls(2, uint32(i+1), uint32(i+1)))
	}
	chain = append(chain, calls(2))
	tests := []struct {
		name   string
		bodies []body
		want   []bool
	}{
		{"a leaf", []body{calls(10)}, []bool{false}},
		{"a long one", []body{calls(smallBody + 1)}, []bool{true}},
		{"one that calls itself", []body{calls(10, 0)}, []bool{true}},
		{"two that call each other", []body{calls(10, 1), calls(10, 0)}, []bool{true, false}},
		{"one that calls a leaf", []body{calls(10, 1), calls(10)}, []bool{false, false}},
		{"one that calls many leaves", []body{calls(10, 1, 1, 1, 1), calls(smallBody / 3)}, []bool{true, false}},
		{"one that calls what is checked", []body{calls(10, 1, 1, 1, 1), calls(smallBody + 1)}, []bool{false, true}},
		{"one that calls what is not known", []body{{size: 1, indirect: true}}, []bool{true}},
	}
	for _, tt := range tests {
		g := newGraph(0, tt.bodies)
		for i, want := range tt.want {
			if g.states[i].checked != want {
				t.Errorf("%s: function %d checked is %v, want %v", tt.name, i, g.states[i].checked, want)
			}
		}
	}
	checked := 0
	for _, s := range newGraph(0, chain).states {
		if s.checked {
			checked++
		}
	}
	if checked < 5 {
		t.Errorf("a tree of 2^50 calls has %d checks", checked)
	}
}

// A module that is cut off anywhere is refused, or is whole by chance; it never
// makes the reader stumble.
func TestTruncated(t *testing.T) {
	b, err := os.ReadFile("../../bin/testers/nowork.wasm")
	if err != nil {
		t.Fatalf("%v; run make testers", err)
	}
	small := whole()
	for n := range small {
		truncated(t, small, n)
	}
	step := 1
	for n := 0; n < len(b); n += step {
		if n > 4096 {
			step = len(b) / 200
		}
		truncated(t, b, n)
	}
}

func truncated(t *testing.T, b []byte, n int) {
	t.Helper()
	if _, err := Meter(b[:n]); err != nil || n == 8 {
		return
	}
	sectionEnds := false
	if list, err := sections(b[:n]); err == nil {
		last := list[len(list)-1]
		sectionEnds = last.at+len(last.payload) == n
	}
	if !sectionEnds {
		t.Errorf("the first %d bytes pass", n)
	}
}

func FuzzMeter(f *testing.F) {
	f.Add(bomb(secType, 1, 0x60, 0, 0))
	f.Add(bomb(secElement, 1, 5, 0x70, 1, opRefFunc, 0, opEnd))
	f.Add(whole())
	f.Fuzz(func(t *testing.T, module []byte) {
		out, err := Meter(module)
		if err == nil && len(out.Bytes) > 4*len(module)+10_000*(1+len(module)/100) {
			t.Errorf("%d bytes became %d", len(module), len(out.Bytes))
		}
	})
}
