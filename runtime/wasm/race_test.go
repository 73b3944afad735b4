//go:build race

package wasm

// underRace says that the race detector makes everything slow.
const underRace = true
