package engine

import "errors"

// The ways in which a module cannot be used.
var (
	// ErrNotWasm says that a file is not a core wasm module.
	ErrNotWasm = errors.New("not a wasm module")
	// ErrABI says that a module does not hold to the ABI.
	ErrABI = errors.New("module does not fit the ABI")
	// ErrDigest says that a module is not the one that its manifest pins.
	ErrDigest = errors.New("module is not the pinned one")
	// ErrNotGranted says that a module asks for what its manifest does not grant.
	ErrNotGranted = errors.New("module asks for more than the manifest grants")
	// ErrImage says that an instance of a module cannot be set back.
	ErrImage = errors.New("module cannot be set back between messages")
)

// The ways in which an invocation ends without the handler's say.
var (
	// ErrTimeout says that the handler did not return by the deadline.
	ErrTimeout = errors.New("timeout")
	// ErrTrap says that the guest trapped: a panic, a wild pointer, no memory.
	ErrTrap = errors.New("trap")
	// ErrExit says that the guest ended its program.
	ErrExit = errors.New("exit")
	// ErrBudget says that the handler used up one of the manifest's limits.
	ErrBudget = errors.New("limit reached")
	// ErrDeadlock says that nothing can happen any more that the handler waits for.
	ErrDeadlock = errors.New("deadlock")
)
