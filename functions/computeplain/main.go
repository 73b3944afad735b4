//go:build wasip1

// Command computeplain exports the work of compute without the SDK, for hosts
// that are not Pelton.
package main

import "github.com/pelton-run/pelton/functions/compute/work"

func main() {} // a reactor is called, not run

//go:wasmexport jpeg
func jpeg() int32 { return int32(min(work.Do("jpeg"), 0)) }

//go:wasmexport json
func json() int32 { return int32(min(work.Do("json"), 0)) }

//go:wasmexport sha256
func sha256() int32 { return int32(min(work.Do("sha256"), 0)) }

//go:wasmexport sort
func sort() int32 { return int32(min(work.Do("sort"), 0)) }

//go:wasmexport regexp
func regexp() int32 { return int32(min(work.Do("regexp"), 0)) }
