package trigger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pelton-run/pelton/manifests"
)

// Metadata of our durables.
const (
	metaFunction = "pelton.function"
	metaStart    = "pelton.start"  // the deliver_policy that the durable was created for, with its start
	metaBegin    = "pelton.begin"  // the sequence that it is to be moved to
	metaPlaced   = "pelton.placed" // that it was
)

// placing bounds how long a durable stays paused while its start is set.
const placing = 10 * time.Minute

// ensureDurable creates the trigger's durable, or adopts the one that exists.
// notes say what was changed on one that exists.
func (c *Consumer) ensureDurable(ctx context.Context, stream jetstream.Stream) (_ jetstream.Consumer, notes []string, err error) {
	t := c.config.Trigger
	if err := checkFilters(t, stream.CachedInfo().Config.Subjects); err != nil {
		return nil, nil, err
	}
	found, err := stream.Consumer(ctx, t.DurableName)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		found, err = c.create(ctx, stream, c.resumeAt(stream.CachedInfo().State.LastSeq))
		return found, nil, err
	case err != nil:
		return nil, nil, fmt.Errorf("look up durable %s: %w", t.DurableName, err)
	}
	info := found.CachedInfo()
	if unplaced(info, t) {
		found, err = c.place(ctx, stream, info.Config)
		return found, nil, err
	}
	return c.adopt(ctx, stream, info)
}

// checkFilters refuses a filter that the stream could never serve.
func checkFilters(t manifests.Trigger, subjects []string) error {
	for _, f := range t.FilterSubjects {
		served := slices.ContainsFunc(subjects, func(s string) bool { return manifests.SubjectsOverlap(s, f) })
		if !served {
			return permanent{fmt.Errorf("filter_subjects %q lies outside stream %s, which takes %s", f, t.Stream, strings.Join(subjects, ", "))}
		}
	}
	return nil
}

// permanent marks an error that waiting does not mend.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// startOf is what a manifest says of where its durable begins.
func startOf(t manifests.Trigger) string {
	switch t.DeliverPolicy {
	case "by_start_sequence":
		return t.DeliverPolicy + " " + strconv.FormatUint(t.OptStartSeq, 10)
	case "by_start_time":
		return t.DeliverPolicy + " " + t.OptStartTime
	}
	return t.DeliverPolicy
}

// create creates the durable. It delivers all, so that it can be rewound; any
// other start is made by pausing it, moving it, and letting it go. resume, when
// not 0, is where an earlier durable of the name had got to.
func (c *Consumer) create(ctx context.Context, stream jetstream.Stream, resume uint64) (jetstream.Consumer, error) {
	t := c.config.Trigger
	config := jetstream.ConsumerConfig{
		Durable: t.DurableName, Description: "Pelton function " + c.config.Function,
		DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: t.AckWait.Std(), MaxDeliver: -1, MaxAckPending: t.MaxAckPending,
		FilterSubjects: t.FilterSubjects,
		Metadata:       map[string]string{metaFunction: c.config.Function, metaStart: startOf(t)},
	}
	begin := resume
	if resume > 0 {
		c.config.Log.Warn().Str("durable", t.DurableName).Uint64("sequence", resume).Msg("the durable is gone, and is made anew where it was")
	} else if t.DeliverPolicy != "all" {
		var err error
		if begin, err = c.startSequence(ctx, stream); err != nil {
			return nil, fmt.Errorf("find the start of durable %s: %w", t.DurableName, err)
		}
	}
	if begin > 0 { // it is written down first, so that whoever moves it moves it to the same place
		config.Metadata[metaBegin] = strconv.FormatUint(begin, 10)
		until := time.Now().Add(placing)
		config.PauseUntil = &until
	}
	created, err := stream.CreateConsumer(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("create durable %s: %w", t.DurableName, err)
	}
	if begin > 0 {
		return c.place(ctx, stream, created.CachedInfo().Config)
	}
	return created, nil
}

// unplaced reports whether a durable of ours was created and never moved to
// its start: its host died in between.
func unplaced(info *jetstream.ConsumerInfo, t manifests.Trigger) bool {
	meta := info.Config.Metadata
	return meta[metaBegin] != "" && meta[metaStart] == startOf(t) && meta[metaPlaced] == "" && info.Delivered.Consumer == 0
}

// unreleased reports whether a durable of ours was moved and never let go: its pause
// is the one that it was made with.
func unreleased(info *jetstream.ConsumerInfo) bool {
	until := info.Config.PauseUntil
	return info.Paused && info.Config.Metadata[metaPlaced] != "" && until != nil && !until.After(info.Created.Add(placing+time.Minute))
}

// place moves a paused durable to where it is to begin and lets it go.
func (c *Consumer) place(ctx context.Context, stream jetstream.Stream, config jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	t := c.config.Trigger
	seq, err := strconv.ParseUint(config.Metadata[metaBegin], 10, 64)
	if err != nil {
		return nil, fmt.Errorf("read the start of durable %s: %w", t.DurableName, err)
	}
	if _, err := c.config.JS.ResetConsumerToSequence(ctx, t.Stream, t.DurableName, seq); err != nil {
		return nil, fmt.Errorf("move durable %s to sequence %d (needs nats-server 2.14): %w", t.DurableName, seq, err)
	}
	config.Metadata[metaPlaced] = strconv.FormatUint(seq, 10)
	placed, err := stream.UpdateConsumer(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("mark durable %s: %w", t.DurableName, err)
	}
	if _, err := c.config.JS.ResumeConsumer(ctx, t.Stream, t.DurableName); err != nil {
		return nil, fmt.Errorf("resume durable %s: %w", t.DurableName, err)
	}
	return placed, nil
}

func (c *Consumer) startSequence(ctx context.Context, stream jetstream.Stream) (uint64, error) {
	t := c.config.Trigger
	switch t.DeliverPolicy {
	case "by_start_sequence":
		return t.OptStartSeq, nil
	case "by_start_time":
		return sequenceAt(ctx, stream, t.OptStartTime)
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq + 1, nil
}

// sequenceAt returns the first sequence stored at or after a time, by a
// consumer that is thrown away.
func sequenceAt(ctx context.Context, stream jetstream.Stream, at string) (uint64, error) {
	start, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return 0, err
	}
	probe, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &start,
		AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: time.Minute,
	})
	if err != nil {
		return 0, err
	}
	info := probe.CachedInfo()
	if err := stream.DeleteConsumer(ctx, info.Name); err != nil {
		return 0, err
	}
	return info.Delivered.Stream + 1, nil
}

// adopt brings a durable that exists to what delivery needs, keeping its
// position, and refuses one that cannot be.
func (c *Consumer) adopt(ctx context.Context, stream jetstream.Stream, info *jetstream.ConsumerInfo) (jetstream.Consumer, []string, error) {
	t, have := c.config.Trigger, info.Config
	name := t.Stream + " " + t.DurableName
	switch {
	case have.Metadata[metaFunction] != "" && have.Metadata[metaFunction] != c.config.Function:
		return nil, nil, permanent{fmt.Errorf("durable %s belongs to function %s, and the two would take each other's messages; give durable_name another value, or remove it with: nats consumer rm %s", t.DurableName, have.Metadata[metaFunction], name)}
	case have.DeliverSubject != "":
		return nil, nil, permanent{fmt.Errorf("durable %s is a push consumer; remove it with: nats consumer rm %s (its position is ack floor %d: set deliver_policy: by_start_sequence and opt_start_seq: %d)", t.DurableName, name, info.AckFloor.Stream, info.AckFloor.Stream+1)}
	case have.AckPolicy != jetstream.AckExplicitPolicy:
		return nil, nil, permanent{fmt.Errorf("durable %s has ack policy %s instead of explicit; remove it with: nats consumer rm %s (its position is ack floor %d)", t.DurableName, have.AckPolicy, name, info.AckFloor.Stream)}
	}
	if was := have.Metadata[metaStart]; was != "" && was != startOf(t) {
		return nil, nil, permanent{fmt.Errorf("function %s: deliver_policy of durable %s is %q, and the manifest says %q; a durable's start cannot be changed: set it back, give the trigger another durable_name, or move this one with: nats consumer reset %s --sequence N", c.config.Function, t.DurableName, was, startOf(t), name)}
	}
	if unreleased(info) {
		if _, err := c.config.JS.ResumeConsumer(ctx, t.Stream, t.DurableName); err != nil {
			return nil, nil, fmt.Errorf("resume durable %s: %w", t.DurableName, err)
		}
	}
	want, notes := adjusted(have, t)
	if len(notes) == 0 {
		consumer, err := stream.Consumer(ctx, t.DurableName)
		return consumer, nil, err
	}
	consumer, err := stream.UpdateConsumer(ctx, want)
	if err != nil {
		return nil, nil, fmt.Errorf("update durable %s (%s): %w", t.DurableName, strings.Join(notes, "; "), err)
	}
	return consumer, notes, nil
}

// minAckWait is the shortest lease that can be extended in time.
const minAckWait = 3 * time.Second

// adjusted returns a durable's configuration as delivery needs it, and what
// differs from the one that it has. What the manifest does not name stays as
// somebody has set it.
func adjusted(have jetstream.ConsumerConfig, t manifests.Trigger) (jetstream.ConsumerConfig, []string) {
	want := have
	var notes []string
	change := func(differs bool, note string, apply func()) {
		if differs {
			notes = append(notes, note)
			apply()
		}
	}
	change(have.MaxDeliver != -1, fmt.Sprintf("max_deliver %d -> -1", have.MaxDeliver), func() { want.MaxDeliver = -1 })
	change(len(have.BackOff) > 0, "backoff removed", func() { want.BackOff = nil })
	change(have.InactiveThreshold != 0, "inactive_threshold removed", func() { want.InactiveThreshold = 0 })
	change(have.MaxRequestBatch != 0 || have.MaxRequestExpires != 0 || have.MaxRequestMaxBytes != 0, "limits of pull requests removed", func() {
		want.MaxRequestBatch, want.MaxRequestExpires, want.MaxRequestMaxBytes = 0, 0, 0
	})
	wait := t.AckWait.Std()
	if !t.Written.AckWait && len(have.BackOff) == 0 {
		wait = max(have.AckWait, minAckWait)
	}
	change(have.AckWait != wait, fmt.Sprintf("ack_wait %s -> %s", have.AckWait, wait), func() { want.AckWait = wait })
	change(t.Written.MaxAckPending && have.MaxAckPending != t.MaxAckPending, fmt.Sprintf("max_ack_pending %d -> %d", have.MaxAckPending, t.MaxAckPending), func() { want.MaxAckPending = t.MaxAckPending })
	filters := have.FilterSubjects
	if have.FilterSubject != "" {
		filters = []string{have.FilterSubject}
	}
	change(!slices.Equal(filters, t.FilterSubjects), fmt.Sprintf("filter_subjects %v -> %v", filters, t.FilterSubjects), func() {
		want.FilterSubject, want.FilterSubjects = "", t.FilterSubjects
	})
	return want, notes
}
