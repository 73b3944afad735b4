package engine

// crowd decides whether a call lets others that are about to come go first, to
// cross into the guest together with them: that costs as much for many calls as
// for one. It does not pay for a few, so after a try that brought few there is
// none for a while, which grows with every such try. The pool's lock guards it.
type crowd struct {
	trying bool
	left   int // crossings until the next try
	pause  int // after a try that brings few
}

const (
	enough       = 8   // calls in one crossing for a try to have been worth it
	longestPause = 256 // crossings
)

// gathers reports whether a call that found an instance idle lets others go first.
func (c *crowd) gathers() bool {
	if c.left > 0 {
		c.left--
		return false
	}
	c.trying = true
	return true
}

// came takes note of how many calls cross.
func (c *crowd) came(n int) {
	switch {
	case !c.trying:
	case n >= enough:
		c.pause = 0
	default:
		c.pause = min(max(1, 2*c.pause), longestPause)
		c.left = c.pause
	}
	c.trying = false
}
