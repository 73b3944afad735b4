package trigger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
)

// The ways in which reading dead letters ends.
var (
	// ErrNoLetters says that no stream takes dead letters: nothing was given up on.
	ErrNoLetters = errors.New("there are no dead letters")
	// ErrRedriven says that somebody redrives a dead letter already, or did and died.
	ErrRedriven = errors.New("it is being redriven, or was when that broke off")
)

// Letter is a dead letter as its headers tell of it.
type Letter struct {
	Sequence     uint64    `json:"sequence"` // in the stream of dead letters
	Time         time.Time `json:"time"`
	Function     string    `json:"function"`
	Host         string    `json:"host,omitempty"`
	Region       string    `json:"region,omitempty"`
	Stream       string    `json:"stream"` // that it came from, with what follows
	StreamSeq    uint64    `json:"stream_sequence"`
	Subject      string    `json:"subject"`
	Consumer     string    `json:"consumer"`
	Deliveries   int       `json:"deliveries"`
	Attempts     int       `json:"attempts"`
	Reason       string    `json:"reason"`
	Error        string    `json:"error,omitempty"`
	FirstFailure string    `json:"first_failure,omitempty"`
	LastFailure  string    `json:"last_failure,omitempty"`
	Size         int       `json:"size"`           // of the body, as far as it is in the letter
	Body         string    `json:"body,omitempty"` // its name in the bucket of bodies, if it did not fit
}

func letterOf(sequence uint64, at time.Time, h nats.Header, size int) Letter {
	number := func(name string) int {
		n, err := strconv.Atoi(h.Get(name))
		if err != nil {
			return 0 // of another writer, then
		}
		return n
	}
	return Letter{
		Sequence: sequence, Time: at, Size: size,
		Function: h.Get("Pelton-Function"), Host: h.Get("Pelton-Host"), Region: h.Get("Pelton-Region"),
		Stream: h.Get("Pelton-Stream"), StreamSeq: uint64(number("Pelton-Sequence")), Subject: h.Get("Pelton-Subject"), Consumer: h.Get("Pelton-Consumer"),
		Deliveries: number("Pelton-Deliveries"), Attempts: number("Pelton-Attempts"), Reason: h.Get("Pelton-Reason"), Error: h.Get("Pelton-Error"),
		FirstFailure: h.Get("Pelton-First-Failure"), LastFailure: h.Get("Pelton-Last-Failure"), Body: h.Get(headerBody),
	}
}

// LetterFilter selects dead letters; what is empty selects all.
type LetterFilter struct {
	Function string
	Reason   string
	Subject  string // a pattern for the original one
	Since    time.Time
	Until    time.Time
}

func (f LetterFilter) matches(l Letter) bool {
	return (f.Function == "" || l.Function == f.Function) && (f.Reason == "" || l.Reason == f.Reason) &&
		(f.Subject == "" || manifests.SubjectMatches(f.Subject, l.Subject)) &&
		(f.Since.IsZero() || !l.Time.Before(f.Since)) && (f.Until.IsZero() || l.Time.Before(f.Until))
}

// Letters reads the stream of dead letters, for the command line and for a host
// that redrives one. It is safe for concurrent use.
type Letters struct {
	js     jetstream.JetStream
	stream jetstream.Stream
}

// OpenLetters finds the stream of dead letters; name is "" for the one that takes
// what begins with dlq.
func OpenLetters(ctx context.Context, js jetstream.JetStream, name string) (*Letters, error) {
	var err error
	if name == "" {
		if name, err = js.StreamNameBySubject(ctx, DeadLetterSubjects); err != nil {
			name, err = js.StreamNameBySubject(ctx, "dlq.x")
		}
	}
	var s jetstream.Stream
	if err == nil {
		s, err = js.Stream(ctx, name)
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, ErrNoLetters
	}
	if err != nil {
		return nil, fmt.Errorf("open the stream of dead letters: %w", err)
	}
	return &Letters{js: js, stream: s}, nil
}

// Stream is the name of the stream.
func (l *Letters) Stream() string { return l.stream.CachedInfo().Config.Name }

// quietAfter is how long a reader waits for one more message that the server has
// said is there.
const quietAfter = 5 * time.Second

// List calls each for every dead letter that is selected, in their order, until
// it returns false. Bodies are not read.
func (l *Letters) List(ctx context.Context, f LetterFilter, each func(Letter) bool) error {
	info, err := l.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", l.Stream(), err)
	}
	last := info.State.LastSeq
	if info.State.Msgs == 0 {
		return nil
	}
	reader, err := l.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		return fmt.Errorf("read stream %s: %w", l.Stream(), err)
	}
	it, err := reader.Messages()
	if err != nil {
		return fmt.Errorf("read stream %s: %w", l.Stream(), err)
	}
	defer it.Stop()
	for {
		msg, err := it.Next(jetstream.NextMaxWait(quietAfter))
		if err != nil {
			return fmt.Errorf("read stream %s: %w", l.Stream(), err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("read stream %s: %w", l.Stream(), err)
		}
		size, err := strconv.Atoi(msg.Headers().Get(nats.MsgSize))
		if err != nil {
			size = 0
		}
		letter := letterOf(meta.Sequence.Stream, meta.Timestamp, msg.Headers(), size)
		if f.matches(letter) && !each(letter) || meta.NumPending == 0 || meta.Sequence.Stream >= last {
			return nil
		}
	}
}

// Full is a dead letter with the message that was given up on.
type Full struct {
	Letter
	Headers nats.Header // the original ones
	Data    []byte      // the original body
}

// Get reads one dead letter whole.
func (l *Letters) Get(ctx context.Context, sequence uint64) (*Full, error) {
	raw, err := l.stream.GetMsg(ctx, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, fmt.Errorf("dead letter %d is not in stream %s", sequence, l.Stream())
	}
	if err != nil {
		return nil, fmt.Errorf("read dead letter %d: %w", sequence, err)
	}
	full := &Full{Letter: letterOf(sequence, raw.Time, raw.Header, len(raw.Data)), Headers: originalHeaders(raw.Header), Data: raw.Data}
	if full.Subject == "" {
		full.Subject = strings.TrimPrefix(raw.Subject, "dlq.") // of another writer
	}
	if full.Body != "" {
		if full.Data, err = l.body(ctx, full.Body); err != nil {
			return nil, fmt.Errorf("read the body of dead letter %d: %w", sequence, err)
		}
	}
	return full, nil
}

// body reads a body from the bucket of bodies.
func (l *Letters) body(ctx context.Context, name string) ([]byte, error) {
	bucket, err := l.js.ObjectStore(ctx, BodiesBucket)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", BodiesBucket, err)
	}
	data, err := bucket.GetBytes(ctx, name)
	if err != nil {
		return nil, err
	}
	if name != bodyName(data) {
		return nil, fmt.Errorf("%s holds something else", name)
	}
	return data, nil
}

// originalHeaders are those that the message had.
func originalHeaders(h nats.Header) nats.Header {
	original := nats.Header{}
	for name, values := range h {
		lower := strings.ToLower(name)
		switch {
		case strings.HasPrefix(name, originalPrefix):
			original[strings.TrimPrefix(name, originalPrefix)] = values
		case name == host.HopsHeader: // the chain does not begin anew
			original[name] = values
		case strings.HasPrefix(lower, "pelton-") || strings.HasPrefix(lower, "nats-"):
		default:
			original[name] = values
		}
	}
	return original
}

// Redrive publishes the message of a dead letter on its original subject, and
// then removes the letter. It is done once: while somebody else does it, or after
// that broke off half way, it is refused with ErrRedriven, unless again is set.
func (l *Letters) Redrive(ctx context.Context, sequence uint64, again bool) error {
	return l.once(ctx, sequence, again, func(full *Full) error {
		msg := &nats.Msg{Subject: full.Subject, Header: full.Headers, Data: full.Data}
		for name := range msg.Header { // they would act a second time
			if strings.HasPrefix(strings.ToLower(name), "nats-") {
				delete(msg.Header, name)
			}
		}
		msg.Header.Set("Pelton-Redrive", strconv.FormatUint(sequence, 10))
		id := l.redriveKey(sequence)
		if max := l.js.Conn().MaxPayload(); int64(msg.Size()+len(nats.MsgIdHdr)+len(id)+4) > max {
			msg.Header.Del("Pelton-Redrive") // it takes all the room that there is
			id = ""
		}
		var options []jetstream.PublishOpt
		if id != "" {
			options = append(options, jetstream.WithMsgID(id))
		}
		_, err := l.js.PublishMsg(ctx, msg, options...)
		if err != nil {
			return fmt.Errorf("publish on %s: %w", full.Subject, err)
		}
		return nil
	})
}

// redriveKey names a dead letter for ever.
func (l *Letters) redriveKey(sequence uint64) string {
	return "redrive." + l.Stream() + "." + strconv.FormatInt(l.stream.CachedInfo().Created.UnixNano(), 36) + "." + strconv.FormatUint(sequence, 10)
}

// once runs what a dead letter is redriven by, and removes it afterwards.
func (l *Letters) once(ctx context.Context, sequence uint64, again bool, drive func(*Full) error) error {
	attempts := NewAttempts(l.js)
	bucket, err := attempts.open(ctx, true, l.stream.CachedInfo().Config.Replicas)
	if err != nil {
		return err
	}
	key := l.redriveKey(sequence)
	if _, err := bucket.Create(ctx, key, []byte(`"started"`)); errors.Is(err, jetstream.ErrKeyExists) && !again {
		return fmt.Errorf("redrive dead letter %d: %w", sequence, ErrRedriven)
	} else if err != nil && !again {
		return fmt.Errorf("claim dead letter %d: %w", sequence, err)
	}
	full, err := l.Get(ctx, sequence) // with the claim in hand: whoever had it before may have removed it
	if err != nil {
		return errors.Join(err, bucket.Purge(ctx, key))
	}
	if err := drive(full); err != nil {
		return errors.Join(fmt.Errorf("redrive dead letter %d: %w", sequence, err), bucket.Purge(ctx, key))
	}
	if err := l.Remove(ctx, sequence); err != nil {
		return err
	}
	if err := bucket.Purge(ctx, key); err != nil {
		return fmt.Errorf("let go of dead letter %d: %w", sequence, err)
	}
	return nil
}

// Remove deletes a dead letter. Its body, if it lies in the bucket of bodies, may
// be another's too, and goes with its age.
func (l *Letters) Remove(ctx context.Context, sequence uint64) error {
	if err := l.stream.DeleteMsg(ctx, sequence); err != nil {
		return fmt.Errorf("remove dead letter %d: %w", sequence, err)
	}
	return nil
}
