// Package pelton is the root of the module. It holds no code; the test beside
// this file enforces which package may import which.
package pelton
