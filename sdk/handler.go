package sdk

import "context"

// batchID is the id of a batch as a whole.
const batchID = 1

// handler is what the function does, and single the same for one message where
// the author wrote it so; set in init, by one goroutine.
var (
	handler func(ctx context.Context, b Batch) error
	single  func(ctx context.Context, msg *Msg) error
)

// Handle registers the function's handler for single messages. Call it once,
// in init. Messages of a batch are handled one after another; those that come by
// themselves are handled beside each other, each in a goroutine of its own, so
// that while one waits (for an operation, a channel, a timer) others run.
func Handle(f func(ctx context.Context, msg *Msg) error) {
	single = f
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
