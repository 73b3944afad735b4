package publish

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
)

const (
	// knownFor is how long what was learnt about a stream is taken for true.
	knownFor = 30 * time.Second
	askFor   = 2 * time.Second // how long a question to the server may take
	// maxTargets bounds the streams that are remembered.
	maxTargets = 64
)

// targets knows which streams take what is published. It is safe for concurrent
// use.
type targets struct {
	js jetstream.JetStream

	mu    sync.Mutex
	known []target
}

// target is what matters of a stream to somebody who publishes to it.
type target struct {
	subjects []string
	maxSize  int32 // of a message; -1 is no bound
	until    time.Time
}

func (t *target) takes(subject string) bool {
	for _, s := range t.subjects {
		if manifests.SubjectMatches(s, subject) {
			return true
		}
	}
	return false
}

// check refuses a message that no stream would store.
func (t *targets) check(ctx context.Context, m *host.Outgoing) error {
	found, ok := t.recall(m.Subject, time.Now())
	if !ok {
		var err error
		if found, err = t.ask(ctx, m.Subject); err != nil {
			return err
		}
	}
	if found.maxSize > 0 && len(m.Data)+headerBytes(m.Headers) > int(found.maxSize) {
		return host.Errorf(host.TooLarge, "publish: %d bytes and headers are above the stream's max_msg_size of %d", len(m.Data), found.maxSize)
	}
	return nil
}

func (t *targets) recall(subject string, now time.Time) (target, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.known {
		if k := &t.known[i]; now.Before(k.until) && k.takes(subject) {
			return *k, true
		}
	}
	return target{}, false
}

func (t *targets) ask(ctx context.Context, subject string) (target, error) {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	name, err := t.js.StreamNameBySubject(ctx, subject)
	var s jetstream.Stream
	if err == nil {
		s, err = t.js.Stream(ctx, name)
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return target{}, host.Errorf(host.NotFound, "publish: no stream takes subject %q; add it to streams.yaml, or grant it with core: true", subject)
	}
	if err != nil {
		return target{}, host.Errorf(host.Unavailable, "publish: ask which stream takes %q: %v", subject, err)
	}
	config := s.CachedInfo().Config
	found := target{subjects: config.Subjects, maxSize: config.MaxMsgSize, until: time.Now().Add(knownFor)}
	t.remember(found)
	return found, nil
}

func (t *targets) remember(found target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.known[:0]
	for _, k := range t.known {
		if time.Now().Before(k.until) && len(kept) < maxTargets-1 {
			kept = append(kept, k)
		}
	}
	t.known = append(kept, found)
}
