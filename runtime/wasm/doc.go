// Package wasm reads wasm binaries and rewrites them so that a guest can be
// stopped: [Meter] charges fuel at every loop and at the entry of every function
// that calls others, and calls the host when it runs out.
//
// The reader knows core wasm 2.0 (https://www.w3.org/TR/wasm-core-2/) and allocates nothing in
// proportion to what a header claims. It refuses what the engine could not bear:
// counts that the bytes cannot hold, functions with too many locals, sections out
// of order. It does not validate types; the engine does that with what Meter
// returns.
package wasm
