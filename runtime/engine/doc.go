// Package engine runs guests on wazero: it compiles a module once, keeps a
// bounded pool of warm instances, calls a handler under a deadline, and discards
// an instance after anything but a clean return.
//
// abi.go is the only place where a guest's pointers are seen; sdk/ABI.md is the
// contract that it implements.
package engine
