package sdk

import (
	"errors"
	"time"
)

// Errno is the kind of a refusal of the host. It is an error itself, so that
// errors.Is(err, sdk.ErrNotFound) works on whatever a call returned.
type Errno int32

// The refusals that a handler can meet and act on.
const (
	ErrDenied      Errno = 1  // the manifest does not grant it
	ErrNotFound    Errno = 2  // there is no such thing
	ErrConflict    Errno = 3  // it exists already, or at another revision
	ErrTooLarge    Errno = 4  // above a limit in bytes, rows or pixels
	ErrCancelled   Errno = 5  // the delivery's time is up
	ErrInvalid     Errno = 6  // the request makes no sense and never will
	ErrUnavailable Errno = 7  // the other side did not answer; may go well later
	ErrLimit       Errno = 8  // a count of the manifest's limits is used up
	ErrAgain       Errno = 9  // the operation is not finished
	ErrFailed      Errno = 10 // the other side refused: an SQL error, say
	ErrUnsupported Errno = 11 // not a form that the host understands: a picture, say
)

var errnoTexts = [...]string{"", "denied", "not found", "conflict", "too large", "cancelled", "invalid",
	"unavailable", "limit reached", "not finished", "failed", "unsupported"}

// Error names the kind.
func (e Errno) Error() string {
	if e > 0 && int(e) < len(errnoTexts) {
		return errnoTexts[e]
	}
	return "unknown refusal"
}

// HostError is a refusal with the host's words. errors.Is finds its Errno.
type HostError struct {
	Errno Errno
	Text  string
}

// Error returns the host's words.
func (e *HostError) Error() string { return e.Text }

// Unwrap returns the kind.
func (e *HostError) Unwrap() error { return e.Errno }

// ErrNoRows says that a query for one row found none.
var ErrNoRows = errors.New("no rows")

// Disposition is how a delivery ends.
type Disposition uint8

// The dispositions, with their numbers at the border.
const (
	DispositionAck  Disposition = 1
	DispositionNak  Disposition = 2
	DispositionTerm Disposition = 3
)

type dispositionError struct {
	cause       error
	disposition Disposition
	delay       time.Duration
}

func (e *dispositionError) Error() string { return e.cause.Error() }
func (e *dispositionError) Unwrap() error { return e.cause }

// Term wraps an error so that the message is given up on: it becomes a dead
// letter with the error as its reason. For what no retry mends.
func Term(err error) error {
	return &dispositionError{cause: orUnknown(err), disposition: DispositionTerm}
}

// NakWithDelay wraps an error so that the message comes again after a delay,
// cut to the manifest's retry.max_delay; for a server's Retry-After, say.
func NakWithDelay(err error, delay time.Duration) error {
	return &dispositionError{cause: orUnknown(err), disposition: DispositionNak, delay: delay}
}

func orUnknown(err error) error {
	if err == nil {
		return errors.New("no reason given")
	}
	return err
}

// DispositionOf tells what an error of a handler means for its message: the
// disposition, the delay asked for (0 for the manifest's) and the reason.
func DispositionOf(err error) (d Disposition, delay time.Duration, reason string) {
	if err == nil {
		return DispositionAck, 0, ""
	}
	var e *dispositionError
	if errors.As(err, &e) {
		return e.disposition, e.delay, err.Error()
	}
	return DispositionNak, 0, err.Error()
}
