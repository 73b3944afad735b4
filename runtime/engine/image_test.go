package engine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pelton-run/pelton/host"
)

// isolation: message sets the instance back: package variables, memory and
// goroutines of one message are not there for the next.
func TestFresh(t *testing.T) {
	p := newPool(t, newEngine(t), "conformance", grantAll, Settings{Max: 1, Fresh: true})
	for _, tt := range [][2]string{{"calls", "1"}, {"calls", "1"}, {"leave", "1 true"}, {"found", "0 false"}, {"leave", "1 true"}, {"exit", ""}, {"found", "0 false"}} {
		o, log, err := invoke(t, p, 10*time.Second, tt[0])
		if tt[0] == "exit" {
			continue
		}
		if err != nil || o.Disposition != host.Ack || !strings.HasPrefix(log, "0 "+tt[1]+" ") {
			t.Errorf("%s: %q, %+v, %v; want %q", tt[0], log, o, err, tt[1])
		}
	}
	if p.alive != 1 || len(p.idle) != 1 {
		t.Errorf("%d instances, %d idle; want the one that is set back", p.alive, len(p.idle))
	}
}

// An instance that has grown cannot be set back; another takes its place.
func TestFreshGrown(t *testing.T) {
	p := newPool(t, newEngine(t), "conformance", grantAll, Settings{Max: 1, Fresh: true, Memory: 256 << 20})
	for range 3 {
		if _, log, err := invoke(t, p, 10*time.Second, "hog 33554432"); err != nil || !strings.HasPrefix(log, "0 1 ") {
			t.Errorf("%q, %v; want the first hog of its instance", log, err)
		}
	}
}

// Without isolation an instance keeps what its handlers leave in it.
func TestNotFresh(t *testing.T) {
	p := newPool(t, newEngine(t), "conformance", grantAll, Settings{Max: 1})
	invoke(t, p, 10*time.Second, "leave")
	if _, log, _ := invoke(t, p, 10*time.Second, "found"); !strings.HasPrefix(log, "0 1 true ") {
		t.Errorf("%q, want what was left: the test of isolation tests nothing", log)
	}
}

// stateful counts in a global and in memory, and traps unless both begin at 0.
func stateful() *assembly {
	return &assembly{globals: 1, bodies: [][]byte{join(
		[]byte{0x23, 0, 0x50, 0x45, 0x04, 0x40, 0x00, end}, // global.get 0, i64.eqz, i32.eqz: unreachable
		i32c(8), []byte{0x28, 2, 0, 0x04, 0x40, 0x00, end}, // i32.load 8: unreachable
		[]byte{0x23, 0, 0x42, 1, 0x7C, 0x24, 0}, // the global grows by 1
		i32c(8), i32c(1), []byte{0x36, 2, 0},    // i32.store 8
	)}}
}

func TestFreshGlobals(t *testing.T) {
	e := newEngine(t)
	module, err := e.Compile(t.Context(), NewBinary(stateful().bytes()), manifest(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	for _, fresh := range []bool{true, false} {
		p, err := NewPool(module, Settings{Max: 1, Memory: 1 << 20, Fresh: fresh})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			_, _, err := invoke(t, p, time.Second, "x")
			if fresh && err != nil || !fresh && i == 1 && !errors.Is(err, ErrTrap) {
				t.Errorf("fresh %v, call %d: %v", fresh, i, err)
			}
		}
		p.Close()
	}
}

// What cannot be set back is refused, by name, when it is loaded.
func TestCannotBeSetBack(t *testing.T) {
	e := newEngine(t)
	tests := map[string][]byte{
		"table.set": join(i32c(0), []byte{0xD2, 0, 0x26, 0}), // ref.func 0
		"elem.drop": {0xFC, 13, 0},
	}
	for name, body := range tests {
		a := &assembly{table: true, bodies: [][]byte{{0x01}, body}}
		module, err := e.Compile(t.Context(), NewBinary(a.bytes()), manifest(t, ""))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := e.Compile(t.Context(), NewBinary(a.bytes()), manifest(t, "isolation: message")); !errors.Is(err, ErrImage) {
			t.Errorf("%s at load: %v, want %v", name, err, ErrImage)
		}
		if _, err := NewPool(module, Settings{Max: 1, Memory: 1 << 20, Fresh: true}); !errors.Is(err, ErrImage) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want %v that names it", name, err, ErrImage)
		}
		if _, err := NewPool(module, Settings{Max: 1, Memory: 1 << 20}); err != nil {
			t.Errorf("%s without isolation: %v", name, err)
		}
	}
}

// Nor does the text of a refusal go from one message to the next.
func TestFreshRefusals(t *testing.T) {
	a := &assembly{imports: []string{"last_error", "op_cancel"}, bodies: [][]byte{join(
		i32c(0), i32c(0), callOf(0), []byte{0x04, 0x40, 0x00, end}, // a text that is there: unreachable
		i32c(9), callOf(1), []byte{0x1A},
	)}}
	module, err := newEngine(t).Compile(t.Context(), NewBinary(a.bytes()), manifest(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	for _, fresh := range []bool{true, false} {
		p, err := NewPool(module, Settings{Max: 1, Memory: 1 << 20, Fresh: fresh})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			if _, _, err := invoke(t, p, time.Second, "x"); (err == nil) != (fresh || i == 0) {
				t.Errorf("fresh %v, call %d: %v", fresh, i, err)
			}
		}
		p.Close()
	}
}
