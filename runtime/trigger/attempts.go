package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/runtime"
)

// The bucket of what is known against messages.
const (
	AttemptsBucket = "PELTON_ATTEMPTS"
	attemptsTTL    = 30 * 24 * time.Hour
	maxRecords     = 100_000 // that a host remembers
	askAgain       = 5 * time.Second
)

// Attempts keeps the records of messages that failed, for all functions of a
// host. It is touched on failure paths only, and safe for concurrent use.
type Attempts struct {
	js jetstream.JetStream

	remembered atomic.Int64 // how many records are in the map

	mu      sync.Mutex
	bucket  jetstream.KeyValue
	missing time.Time // when the bucket was last found not to be there
	loaded  bool
	records map[string]runtime.Record // what was there at the start, and what this host has put
}

// NewAttempts makes the records of a host.
func NewAttempts(js jetstream.JetStream) *Attempts {
	return &Attempts{js: js, records: map[string]runtime.Record{}}
}

// recordKey names a message for ever.
func recordKey(function string, m *host.Message) string {
	return function + "." + m.Consumer + "." + strconv.FormatInt(m.StreamCreated.UnixNano(), 36) + "." + strconv.FormatUint(m.StreamSeq, 10)
}

// open returns the bucket, nil when there is none and create is false.
func (a *Attempts) open(ctx context.Context, create bool, replicas int) (jetstream.KeyValue, error) {
	a.mu.Lock()
	bucket, missing := a.bucket, a.missing
	a.mu.Unlock()
	if bucket != nil || !create && time.Since(missing) < askAgain {
		return bucket, nil
	}
	bucket, err := a.js.KeyValue(ctx, AttemptsBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) && create {
		bucket, err = createBucket(ctx, a.js, jetstream.KeyValueConfig{
			Bucket: AttemptsBucket, Description: "Failed attempts of Pelton functions.", TTL: attemptsTTL, Replicas: max(1, replicas),
		})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		a.missing = time.Now()
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", AttemptsBucket, err)
	}
	a.bucket = bucket
	return bucket, nil
}

// createBucket makes a bucket, or opens the one that another host has made meanwhile.
func createBucket(ctx context.Context, js jetstream.JetStream, config jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	bucket, err := js.CreateKeyValue(ctx, config)
	if errors.Is(err, jetstream.ErrBucketExists) {
		return js.KeyValue(ctx, config.Bucket)
	}
	return bucket, err
}

// load reads all records once: a server that died with this host may have
// forgotten how often it delivered what.
func (a *Attempts) load(ctx context.Context) error {
	a.mu.Lock()
	loaded := a.loaded
	a.mu.Unlock()
	if loaded {
		return nil
	}
	bucket, err := a.open(ctx, false, 0)
	if err != nil {
		return err
	}
	if bucket != nil {
		if err := a.read(ctx, bucket); err != nil {
			return fmt.Errorf("read bucket %s: %w", AttemptsBucket, err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.loaded = true
	return nil
}

func (a *Attempts) read(ctx context.Context, bucket jetstream.KeyValue) error {
	all, err := bucket.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return err
	}
	defer all.Stop()
	for {
		select {
		case e := <-all.Updates():
			if e == nil {
				return nil
			}
			var r runtime.Record
			if json.Unmarshal(e.Value(), &r) == nil { // what is not ours is no record
				a.remember(e.Key(), r)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (a *Attempts) remember(key string, r runtime.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.records) < maxRecords || a.records[key] != (runtime.Record{}) {
		a.records[key] = r
	}
	a.remembered.Store(int64(len(a.records)))
}

// forget forgets a record, and reports whether it was known and the bucket is open.
func (a *Attempts) forget(key string) (known, open bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known = a.records[key]
	delete(a.records, key)
	a.remembered.Store(int64(len(a.records)))
	return known, a.bucket != nil
}

// get returns the record of a message. One that comes for the first time has none
// unless the host remembers one.
func (a *Attempts) get(ctx context.Context, function string, m *host.Message) (runtime.Record, error) {
	if m.NumDelivered <= 1 && a.remembered.Load() == 0 {
		return runtime.Record{}, nil
	}
	key := recordKey(function, m)
	a.mu.Lock()
	r, known := a.records[key]
	a.mu.Unlock()
	if m.NumDelivered <= 1 && !known {
		return r, nil
	}
	bucket, err := a.open(ctx, false, 0)
	if bucket == nil || err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	e, err := bucket.Get(ctx, key)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound): // another host has seen its end
		a.forget(key)
		return runtime.Record{}, nil
	case err != nil:
		if known {
			return r, nil
		}
		a.reopen()
		return r, fmt.Errorf("read the record of a message: %w", err)
	}
	r = runtime.Record{}
	if err := json.Unmarshal(e.Value(), &r); err != nil {
		return r, fmt.Errorf("read the record of a message: %w", err)
	}
	return r, nil
}

// reopen has the bucket looked up again: somebody may have removed it.
func (a *Attempts) reopen() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bucket = nil
}

// put keeps a record.
func (a *Attempts) put(ctx context.Context, key string, r runtime.Record, replicas int) error {
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the record of a message: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	bucket, err := a.open(ctx, true, replicas)
	if err != nil {
		return err
	}
	if _, err := bucket.Put(ctx, key, value); err != nil {
		a.reopen()
		return fmt.Errorf("keep the record of a message: %w", err)
	}
	a.remember(key, r)
	return nil
}

// clear forgets the record of a message that has ended. Nobody waits for it: a
// record that stays is of a message that does not come again.
func (a *Attempts) clear(function string, m *host.Message) {
	if m.NumDelivered <= 1 && a.remembered.Load() == 0 {
		return
	}
	key := recordKey(function, m)
	known, exists := a.forget(key)
	if exists && (known || m.NumDelivered > 1) {
		prefix := apiPrefix(a.js.Options())
		if prefix == jetstream.DefaultAPIPrefix {
			prefix = "" // the bucket's own subject
		}
		a.js.Conn().PublishMsg(&nats.Msg{
			Subject: prefix + "$KV." + AttemptsBucket + "." + key,
			Header:  nats.Header{"KV-Operation": {"PURGE"}, "Nats-Rollup": {"sub"}},
		})
	}
}
