package sdk

import "context"

// Buffer is bytes on the host's side: an HTTP body, a picture, a blob. It can be
// handed from one operation to another without entering the guest's memory,
// and lives as long as its invocation.
type Buffer struct {
	delivery uint32
	handle   int32
	size     int
	data     []byte // natively, in tests
}

// NewBuffer puts bytes into a buffer.
func NewBuffer(ctx context.Context, data []byte) (Buffer, error) { return newBuffer(ctx, data) }

// Len is the number of bytes.
func (b Buffer) Len() int { return b.size }

// Bytes copies the buffer into the guest.
func (b Buffer) Bytes() ([]byte, error) { return b.read(0, b.size) }

// Prefix copies the first bytes, n at most.
func (b Buffer) Prefix(n int) ([]byte, error) { return b.read(0, min(n, b.size)) }

// Close gives the buffer's bytes back before the invocation ends.
func (b Buffer) Close() error { return b.close() }
