package trigger

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pelton-run/pelton/host"
)

// Timing of a function that runs on one host at a time. Others take it to be dead
// later than it takes itself to be: no clock of one is compared with another's.
const (
	soleRenew  = time.Second
	soleHolds  = 5 * time.Second // after the last renewal, by the holder's clock
	soleExpect = 7 * time.Second // without one, by another's clock
)

// Sole is the right to run a function that runs on one host at a time. Run must be
// running. It is safe for concurrent use.
type Sole struct {
	owners *Owners
	key    string
	begun  time.Time
	until  atomic.Int64 // since begun: how long this host may run it; monotonic
}

// NewSole makes the right to run a function, which this host does not have yet.
func (o *Owners) NewSole(function string) *Sole {
	return &Sole{owners: o, key: "one." + function, begun: time.Now()}
}

// Held reports whether this host may run the function. It is right for a process
// that was frozen, too, from the moment that it goes on.
func (s *Sole) Held() bool { return s == nil || time.Since(s.begun) < time.Duration(s.until.Load()) }

// Fence refuses when the host may not run the function; see host.Grants.
func (s *Sole) Fence() error {
	if s.Held() {
		return nil
	}
	return host.Errorf(host.Cancelled, "the function runs on another host now")
}

// lost returns when this host may no longer run the function, or ctx has ended.
func (s *Sole) lost(ctx context.Context) {
	ticker := time.NewTicker(soleRenew / 4)
	defer ticker.Stop()
	for s.Held() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Run gets the right when no host has it, and keeps it, until ctx ends; then it
// lets it go, so that another host need not wait.
func (s *Sole) Run(ctx context.Context) {
	var seen uint64 // the revision that another host has written
	var since time.Time
	var mine uint64
	ticker := time.NewTicker(soleRenew)
	defer ticker.Stop()
	for {
		switch revision, err := s.renew(ctx, mine); {
		case err == nil:
			mine, seen = revision, 0
		case mine != 0 && !s.Held() || errors.Is(err, errTaken):
			s.until.Store(0)
			mine = 0
			if revision != seen {
				seen, since = revision, time.Now()
			} else if seen != 0 && time.Since(since) >= soleExpect {
				mine = seen // whoever wrote it is dead; the next renewal takes it
			}
		default:
			s.owners.forget() // somebody may have removed the bucket
		}
		select {
		case <-ctx.Done():
			s.release(context.WithoutCancel(ctx), mine)
			return
		case <-ticker.C:
		}
	}
}

// errTaken says that another host has the right, or had it and is dead.
var errTaken = errors.New("another host has it")

// renew writes that this host runs the function, over the revision that it wrote
// before, 0 if it had written none. With errTaken it returns what is there.
func (s *Sole) renew(ctx context.Context, mine uint64) (revision uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, soleHolds/2)
	defer cancel()
	bucket, err := s.owners.open(ctx, 0)
	if err != nil {
		return 0, err
	}
	begin := time.Since(s.begun)
	if mine == 0 {
		revision, err = bucket.Create(ctx, s.key, []byte(s.owners.host))
	} else {
		revision, err = bucket.Update(ctx, s.key, []byte(s.owners.host), mine)
	}
	if err == nil {
		s.until.Store(int64(begin + soleHolds))
		return revision, nil
	}
	e, getErr := bucket.Get(ctx, s.key)
	switch {
	case getErr != nil:
		return 0, fmt.Errorf("look who runs it: %w", getErr)
	case string(e.Value()) == s.owners.host && e.Revision() != mine:
		// An answer was lost, or the host died and is back. Only a write of this
		// moment gives the right: another may be about to take it.
		if revision, err := bucket.Update(ctx, s.key, []byte(s.owners.host), e.Revision()); err == nil {
			s.until.Store(int64(begin + soleHolds))
			return revision, nil
		}
		return e.Revision(), errTaken
	}
	if errors.Is(err, jetstream.ErrKeyExists) || e.Revision() != mine {
		return e.Revision(), errTaken
	}
	return 0, err
}

func (s *Sole) release(ctx context.Context, mine uint64) {
	s.until.Store(0)
	if mine == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, soleRenew)
	defer cancel()
	if bucket, err := s.owners.open(ctx, 0); err == nil {
		bucket.Delete(ctx, s.key, jetstream.LastRevision(mine)) // otherwise it runs out
	}
}
