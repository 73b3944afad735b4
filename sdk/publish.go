package sdk

import "context"

// Outgoing is a message to publish.
type Outgoing struct {
	Subject string
	Header  Header
	Data    []byte
	// Key, when set, stands for the content in the message id: within one
	// message's handling, two publishes with the same key are one.
	Key string
}

// PubAck says where a message was stored. It is empty for a message that waits
// for the transaction's commit, and for one without a stream.
type PubAck struct {
	Stream    string
	Sequence  uint64
	Duplicate bool
}

// Publish publishes a message to a subject that the manifest grants.
//
// The stream drops a message that the same handler published for the same
// message before, so that a retry does not double it.
func Publish(ctx context.Context, subject string, data []byte) error {
	_, err := PublishMsg(ctx, &Outgoing{Subject: subject, Data: data})
	return err
}

// PublishMsg publishes a message with headers.
func PublishMsg(ctx context.Context, m *Outgoing) (PubAck, error) { return publish(ctx, m) }
