//go:build crashpoints

package host

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// CrashPoints says whether this is a test build that can die where it is told.
const CrashPoints = true

// crashes says where the process is to die, and how often it still passes there.
// It is of test builds only.
var crashes = struct {
	sync.Mutex
	left map[string]int
}{left: readCrashes(os.Getenv("PELTON_CRASH"))}

// readCrashes reads places with commas between them, each a name, with a detail
// after = if it matters, and after # at which passage the process dies.
func readCrashes(s string) map[string]int {
	left := map[string]int{}
	for _, place := range strings.Split(s, ",") {
		name, nth, _ := strings.Cut(place, "#")
		n, err := strconv.Atoi(nth)
		if err != nil {
			n = 1
		}
		left[name] = n
	}
	return left
}

// CrashPoint ends the process, as kill -9 does, when PELTON_CRASH says so.
func CrashPoint(name, detail string) {
	if len(crashes.left) == 1 && crashes.left[""] == 1 {
		return
	}
	crashes.Lock()
	defer crashes.Unlock()
	for _, place := range []string{name, name + "=" + detail} {
		if n, ok := crashes.left[place]; ok {
			if crashes.left[place] = n - 1; n == 1 {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {} // until it is dead
			}
		}
	}
}
