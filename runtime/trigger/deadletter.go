package trigger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime"
)

// The stream of dead letters that is created when no other takes them, and the
// bucket of bodies that do not fit beside the headers.
const (
	DeadLetterStream   = "DLQ"
	DeadLetterSubjects = "dlq.>"
	BodiesBucket       = "PELTON_BODIES"
	deadLetterMaxAge   = 30 * 24 * time.Hour
	deadLetterWindow   = 24 * time.Hour // for duplicates: a give-up is tried again until it is stored
	maxErrorHeader     = 2 << 10        // bytes of the error's text
	checkedFor         = 10 * time.Second
)

const (
	headerBody     = "Pelton-Body"      // the name of the body in the bucket of bodies
	originalPrefix = "Pelton-Original-" // of the message's own headers that would act on the copy
)

// DeadLetters stores what a function gave up on. It is safe for concurrent use.
type DeadLetters struct {
	JS       jetstream.JetStream
	Config   manifests.DeadLetter
	Function string
	Host     string
	Region   string

	mu      sync.Mutex
	taken   []string      // the subjects of the stream that was last seen to take one
	maxSize int           // of its messages; 0 is no bound
	maxAge  time.Duration // of its messages; 0 is no bound
	checked time.Time     // when
}

// make makes the dead letter of a message, nil when none is wanted. Its stream is
// there when it returns, and so is the body if it does not fit into the letter.
func (l *DeadLetters) make(ctx context.Context, m *host.Message, v runtime.Verdict, replicas int) (*host.Outgoing, error) {
	if !l.Config.On() {
		return nil, nil
	}
	if strings.HasPrefix(m.Subject, "dlq.") {
		return nil, fmt.Errorf("give up on message %d of stream %s: %w", m.StreamSeq, m.Stream, runtime.ErrLoop)
	}
	letter := &host.Outgoing{
		Subject: manifests.Expand(l.Config.Subject, map[string]string{"subject": m.Subject, "function": l.Function}),
		Headers: l.headers(m, v), Data: m.Data,
		MsgID: "dlq/" + l.Function + "/" + m.Consumer + "/" + m.Identity(),
	}
	most, err := l.room(ctx, letter.Subject, replicas)
	if err != nil {
		return nil, err
	}
	if size(letter) > most {
		if err := l.storeBody(ctx, letter, m, replicas); err != nil {
			return nil, err
		}
	}
	return letter, nil
}

// size is what a message takes of the server's max_payload, with the headers that
// the client adds.
func size(m *host.Outgoing) int {
	n := len("NATS/1.0\r\n\r\n") + len(nats.MsgIdHdr) + len(m.MsgID) + len(": \r\n") + len(m.Data)
	for name, values := range m.Headers {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return n
}

// headers are the message's own, and ours.
func (l *DeadLetters) headers(m *host.Message, v runtime.Verdict) map[string][]string {
	h := maps.Clone(m.Headers)
	if h == nil {
		h = map[string][]string{}
	}
	for name := range m.Headers {
		if strings.HasPrefix(strings.ToLower(name), "nats-") { // they would act on the copy
			h[originalPrefix+name] = h[name]
			delete(h, name)
		}
	}
	set := func(name, value string) { h["Pelton-"+name] = []string{value} }
	set("Function", l.Function)
	set("Host", l.Host)
	set("Region", l.Region)
	set("Stream", m.Stream)
	set("Sequence", strconv.FormatUint(m.StreamSeq, 10))
	set("Subject", m.Subject)
	set("Consumer", m.Consumer)
	set("Deliveries", strconv.FormatUint(m.NumDelivered, 10))
	set("Attempts", strconv.Itoa(v.Record.Attempts))
	set("Reason", v.Reason)
	set("Error", headerText(v.Error))
	set("First-Failure", v.Record.First.UTC().Format(time.RFC3339Nano))
	set("Last-Failure", v.Record.Last.UTC().Format(time.RFC3339Nano))
	return h
}

// headerText makes one short line of an error.
func headerText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if len(s) > maxErrorHeader {
		s = strings.ToValidUTF8(s[:maxErrorHeader], "")
	}
	return strings.TrimSpace(s)
}

// storeBody puts the body into a bucket, under a name that says what it is, and
// leaves the name in the letter.
func (l *DeadLetters) storeBody(ctx context.Context, letter *host.Outgoing, m *host.Message, replicas int) error {
	bucket, err := l.JS.ObjectStore(ctx, BodiesBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		l.mu.Lock()
		ttl := l.maxAge // a body must outlive its letter
		l.mu.Unlock()
		if ttl > 0 {
			ttl += deadLetterWindow
		}
		bucket, err = l.JS.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
			Bucket: BodiesBucket, Description: "Bodies of dead letters that are too large beside their headers.",
			TTL: ttl, Replicas: max(1, replicas),
		})
		if errors.Is(err, jetstream.ErrBucketExists) { // another host was first
			bucket, err = l.JS.ObjectStore(ctx, BodiesBucket)
		}
	}
	if err != nil {
		return fmt.Errorf("open bucket %s: %w", BodiesBucket, err)
	}
	name := bodyName(m.Data)
	if _, err := bucket.PutBytes(ctx, name, m.Data); err != nil {
		return fmt.Errorf("store the body of a dead letter: %w", err)
	}
	letter.Headers[headerBody], letter.Data = []string{name}, nil
	return nil
}

// bodyName is where a body lies in the bucket of bodies.
func bodyName(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256/" + hex.EncodeToString(sum[:])
}

// store publishes a dead letter. It returns once a stream has acknowledged it.
func (l *DeadLetters) store(ctx context.Context, letter *host.Outgoing) error {
	msg := &nats.Msg{Subject: letter.Subject, Header: nats.Header(maps.Clone(letter.Headers)), Data: letter.Data}
	if _, err := l.JS.PublishMsg(ctx, msg, jetstream.WithMsgID(letter.MsgID)); err != nil {
		l.forget()
		return fmt.Errorf("%w on %s: %w", runtime.ErrNotStored, letter.Subject, err)
	}
	return nil
}

func (l *DeadLetters) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checked = time.Time{}
}

// room is how large a dead letter may be: as its stream and the server take it. It
// makes the stream if none takes what begins with dlq.
func (l *DeadLetters) room(ctx context.Context, subject string, replicas int) (most int, err error) {
	most = int(l.JS.Conn().MaxPayload())
	l.mu.Lock()
	fresh := time.Since(l.checked) < checkedFor && slices.ContainsFunc(l.taken, func(s string) bool { return manifests.SubjectMatches(s, subject) })
	if fresh && l.maxSize > 0 {
		most = min(most, l.maxSize)
	}
	l.mu.Unlock()
	if fresh {
		return most, nil
	}
	if err := EnsureDeadLetterStream(ctx, l.JS, subject, replicas); err != nil {
		return 0, err
	}
	name, err := l.JS.StreamNameBySubject(ctx, subject)
	if err != nil {
		return 0, fmt.Errorf("look up the stream of dead letters: %w", err)
	}
	s, err := l.JS.Stream(ctx, name)
	if err != nil {
		return 0, fmt.Errorf("look up the stream of dead letters: %w", err)
	}
	config := s.CachedInfo().Config
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken, l.maxSize, l.maxAge, l.checked = config.Subjects, max(0, int(config.MaxMsgSize)), config.MaxAge, time.Now()
	if l.maxSize > 0 {
		most = min(most, l.maxSize)
	}
	return most, nil
}

// EnsureDeadLetterStream makes the stream of dead letters when a subject is one of
// theirs and no stream takes it.
func EnsureDeadLetterStream(ctx context.Context, js jetstream.JetStream, subject string, replicas int) error {
	_, err := js.StreamNameBySubject(ctx, subject)
	if errors.Is(err, jetstream.ErrStreamNotFound) && strings.HasPrefix(subject, "dlq.") {
		err = createDeadLetterStream(ctx, js, replicas)
	}
	if err != nil {
		return fmt.Errorf("store dead letter on %s: %w", subject, err)
	}
	return nil
}

func createDeadLetterStream(ctx context.Context, js jetstream.JetStream, replicas int) error {
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: DeadLetterStream, Subjects: []string{DeadLetterSubjects},
		Description: "Messages that functions gave up on; pelton dlq reads them.",
		MaxAge:      deadLetterMaxAge, Duplicates: deadLetterWindow, AllowDirect: true, Replicas: max(1, replicas),
	})
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return fmt.Errorf("create stream %s: %w", DeadLetterStream, err)
	}
	return nil
}
