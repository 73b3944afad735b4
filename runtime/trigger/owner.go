package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pelton-run/pelton/host"
)

// The bucket of what is known of durables: how far they are, which database has
// their state, and which host runs a function that runs on one.
const (
	OwnersBucket = "PELTON_OWNERS"
	noteEvery    = 10 * time.Second // between notes of how far a durable is
)

// claim is what the bucket says of a durable.
type claim struct {
	Function string    `json:"function"`
	Durable  string    `json:"durable"`
	Stream   string    `json:"stream"`
	Created  int64     `json:"stream_created"` // UnixNano
	Floor    uint64    `json:"floor"`          // everything up to here is acked
	Database string    `json:"database,omitempty"`
	High     uint64    `json:"high,omitempty"` // of the database's inbox
	Host     string    `json:"host"`
	Time     time.Time `json:"time"`
}

// Owners keeps the claims of a host's functions. It is safe for concurrent use.
type Owners struct {
	js   jetstream.JetStream
	host string

	mu     sync.Mutex
	bucket jetstream.KeyValue
}

// NewOwners makes the claims of a host.
func NewOwners(js jetstream.JetStream, host string) *Owners { return &Owners{js: js, host: host} }

func (o *Owners) open(ctx context.Context, replicas int) (jetstream.KeyValue, error) {
	o.mu.Lock()
	bucket := o.bucket
	o.mu.Unlock()
	if bucket != nil {
		return bucket, nil
	}
	bucket, err := o.js.KeyValue(ctx, OwnersBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		config := jetstream.KeyValueConfig{Bucket: OwnersBucket, Description: "Where the state of Pelton functions lives, and how far their durables are.", Replicas: replicas}
		if replicas == 0 { // nothing tells how many there should be: as many as keep it through a loss
			config.Replicas = 3
		}
		bucket, err = createBucket(ctx, o.js, config)
		if err != nil && replicas == 0 {
			config.Replicas = 1 // a server that is alone, or a small cluster
			bucket, err = createBucket(ctx, o.js, config)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", OwnersBucket, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bucket = bucket
	return bucket, nil
}

func claimKey(s host.Source) string { return s.Function + "." + s.Stream + "." + s.Durable }

// look returns what is claimed of a durable; a zero revision says that nothing is.
func (o *Owners) look(ctx context.Context, s host.Source, replicas int) (c claim, revision uint64, err error) {
	bucket, err := o.open(ctx, replicas)
	if err != nil {
		return c, 0, err
	}
	e, err := bucket.Get(ctx, claimKey(s))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return c, 0, nil
	}
	if err == nil {
		err = json.Unmarshal(e.Value(), &c)
	}
	if err != nil {
		o.forget()
		return c, 0, fmt.Errorf("read the claim on durable %s: %w", s.Durable, err)
	}
	return c, e.Revision(), nil
}

// forget has the bucket looked up again.
func (o *Owners) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bucket = nil
}

// take writes a claim where the bucket has had the revision, and returns the next.
func (o *Owners) take(ctx context.Context, s host.Source, c claim, revision uint64, replicas int) (uint64, error) {
	bucket, err := o.open(ctx, replicas)
	if err != nil {
		return 0, err
	}
	c.Host, c.Time = o.host, time.Now().UTC()
	b, err := json.Marshal(c)
	if err != nil {
		return 0, fmt.Errorf("encode the claim on durable %s: %w", s.Durable, err)
	}
	if revision == 0 {
		revision, err = bucket.Create(ctx, claimKey(s), b)
	} else {
		revision, err = bucket.Update(ctx, claimKey(s), b, revision)
	}
	if err != nil {
		o.forget()
		return 0, fmt.Errorf("claim durable %s: %w", s.Durable, err)
	}
	return revision, nil
}

// standby marks that a host does not run a trigger because its state lives
// elsewhere.
type standby struct{ error }

func (s standby) Unwrap() error { return s.error }

// mayRun says why a host must not run a durable: the state that belongs to it is
// in another database than the one that is open here, or in a newer copy of it.
func mayRun(have claim, database string, high uint64, key string) error {
	const ways = "bring that host back; or put {{host}} or {{region}} into durable_name, so that each has a whole copy; or give the trigger another durable_name here, which builds the state anew from the stream"
	switch {
	case database == "" || have.Database == "":
		return nil
	case have.Database != database:
		return standby{fmt.Errorf("the state of durable %s is in a database of host %s (%s), and the one here (%s) is another; %s", have.Durable, have.Host, short(have.Database), short(database), ways)}
	case high < have.High:
		return standby{fmt.Errorf("the database here is an older copy: it is at message %d, and host %s had it at %d; restore a newer one, or remove the claim to have the messages between lost: nats kv del %s %s", high, have.Host, have.High, OwnersBucket, key)}
	}
	return nil
}

func short(uuid string) string { return uuid[:min(8, len(uuid))] }

// checkClaim refuses to run a durable whose state lives elsewhere, and a stream that
// went back.
func (c *Consumer) checkClaim(ctx context.Context, stream jetstream.Stream) error {
	p, database, err := c.config.Dispatcher.Position(ctx, c.source)
	if err != nil {
		return err
	}
	have, revision, err := c.config.Owners.look(ctx, c.source, c.replicas)
	if err != nil {
		return err
	}
	if have.Created != c.source.Created { // of another stream of that name: its positions say nothing
		have.Floor, have.High = 0, 0
	}
	if err := mayRun(have, database, p.High, claimKey(c.source)); err != nil {
		return err
	}
	if err := c.checkPast(ctx, stream, p); err != nil {
		return err
	}
	have.Function, have.Durable, have.Stream, have.Created = c.source.Function, c.source.Durable, c.source.Stream, c.source.Created
	have.Database, have.High = database, p.High
	c.claim, c.revision = have, revision
	return nil
}

// resumeAt is where a durable goes on that had got somewhere and is gone, in a
// stream that ends with last; 0 when there was none.
func (c *Consumer) resumeAt(last uint64) uint64 {
	if c.claim.Floor == 0 {
		return 0
	}
	return min(c.claim.Floor, last) + 1 // the stream may have gone back
}

// take claims the durable for this host.
func (c *Consumer) take(ctx context.Context, floor uint64) (err error) {
	c.claim.Floor = floor
	c.revision, err = c.config.Owners.take(ctx, c.source, c.claim, c.revision, c.replicas)
	c.noted = time.Now()
	return err
}

// note keeps how far the durable is, now and then while it moves. What fails is
// done the next time; another host of the same durable may have done it.
func (c *Consumer) note(ctx context.Context, floor uint64) {
	if time.Since(c.noted) < noteEvery {
		return
	}
	p, _, err := c.config.Dispatcher.Position(ctx, c.source)
	if err != nil || floor == c.claim.Floor && p.High == c.claim.High {
		return
	}
	c.claim.High = p.High
	if c.take(ctx, floor) == nil {
		return
	}
	if have, revision, err := c.config.Owners.look(ctx, c.source, c.replicas); err == nil && have.Database == c.claim.Database {
		c.revision = revision
	}
}
