package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pelton-run/pelton/manifests"
)

// EnsureStreams creates the declared streams that do not exist, and returns
// their names. Those that exist are left as they are.
func EnsureStreams(ctx context.Context, js jetstream.JetStream, declared []manifests.Stream) (created []string, err error) {
	for _, s := range declared {
		_, err := js.Stream(ctx, s.Name)
		if err == nil {
			continue
		}
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return created, fmt.Errorf("look up stream %s: %w", s.Name, err)
		}
		_, err = js.CreateStream(ctx, StreamConfig(s))
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another host was first
			continue
		}
		if err != nil {
			return created, fmt.Errorf("create stream %s: %w", s.Name, err)
		}
		created = append(created, s.Name)
	}
	return created, nil
}

// StreamConfig translates a declaration into JetStream's configuration.
func StreamConfig(s manifests.Stream) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name: s.Name, Description: s.Description, Subjects: s.Subjects,
		MaxAge: s.MaxAge.Std(), MaxBytes: orUnlimited(int64(s.MaxBytes)), MaxMsgs: s.MaxMsgs,
		MaxMsgsPerSubject: s.MaxMsgsPerSubject, MaxMsgSize: int32(orUnlimited(int64(s.MaxMsgSize))),
		Duplicates: s.DuplicateWindow.Std(), Replicas: s.Replicas, AllowDirect: true,
	}
	switch s.Retention {
	case "interest":
		c.Retention = jetstream.InterestPolicy
	case "workqueue":
		c.Retention = jetstream.WorkQueuePolicy
	}
	if s.Storage == "memory" {
		c.Storage = jetstream.MemoryStorage
	}
	if s.Discard == "new" {
		c.Discard = jetstream.DiscardNew
	}
	return c
}

func orUnlimited(n int64) int64 {
	if n == 0 {
		return -1
	}
	return n
}
