//go:build !crashpoints

package host

// CrashPoints says whether this is a test build that can die where it is told.
const CrashPoints = false

// CrashPoint names a place where the process may die, for tests that have it die
// there. Outside of them it does nothing.
func CrashPoint(name, detail string) {}
