package engine

import "testing"

// A try that brings many is followed by another; tries that bring few come ever
// more seldom, but never cease.
func TestCrowd(t *testing.T) {
	var c crowd
	tries := func(crossings, calls int) (n int) {
		for range crossings {
			if c.gathers() {
				n++
			}
			c.came(calls)
		}
		return n
	}
	if got := tries(100, enough); got != 100 {
		t.Errorf("%d tries in 100 crossings with many calls, want all", got)
	}
	if got := tries(100, 1); got != 7 { // 1 + 2 + 4 + … between
		t.Errorf("%d tries in 100 crossings with one call, want 7", got)
	}
	tries(10_000, 1)
	if got := tries(10*(longestPause+1), 1); got != 10 {
		t.Errorf("%d tries in %d crossings, want 10", got, 10*(longestPause+1))
	}
	for !c.gathers() {
		c.came(1)
	}
	c.came(enough)
	if got := tries(100, enough); got != 100 {
		t.Errorf("%d tries in 100 crossings once many calls come, want all", got)
	}
}
