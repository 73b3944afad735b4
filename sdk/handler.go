package sdk

import "context"

// batchID is the id of a batch as a whole.
const batchID = 1

// handler is what the function does; set in init, by one goroutine.
var handler func(ctx context.Context, b Batch) error

// Handle registers the function's handler for single messages. Call it once,
// in init. Messages of one invocation are handled one after another.
func Handle(f func(ctx context.Context, msg *Msg) error) {
	HandleBatch(func(ctx context.Context, b Batch) error { return b.Each(ctx, f) })
}

// HandleBatch registers the function's handler for batches. Call it once, in
// init. nil acks the messages that [Batch.Each] did not settle, an error counts
// for all of those.
func HandleBatch(f func(ctx context.Context, b Batch) error) {
	if handler != nil {
		panic("sdk: a function has one handler")
	}
	handler = f
}
