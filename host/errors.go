package host

import (
	"context"
	"errors"
	"fmt"
)

// Errno says what kind of refusal an operation met. A guest sees it negated as
// the result of the call; the numbers are part of the ABI.
type Errno int32

// The refusals. sdk/ABI.md holds the same table.
const (
	Denied      Errno = 1  // the manifest does not grant it
	NotFound    Errno = 2  // there is no such thing
	Conflict    Errno = 3  // it exists already, or at another revision
	TooLarge    Errno = 4  // above a limit in bytes, rows or pixels
	Cancelled   Errno = 5  // the delivery's context ended
	Invalid     Errno = 6  // the request makes no sense and never will
	Unavailable Errno = 7  // the other side did not answer or broke off; may go well later
	Limit       Errno = 8  // a count of the manifest's limits is used up
	Again       Errno = 9  // the ticket is not finished
	Failed      Errno = 10 // the other side refused: an SQL error, say
	Unsupported Errno = 11 // not a form that the host understands: a picture, say
)

var errnoNames = map[Errno]string{
	Denied: "denied", NotFound: "not found", Conflict: "conflict", TooLarge: "too large",
	Cancelled: "cancelled", Invalid: "invalid", Unavailable: "unavailable", Limit: "limit reached",
	Again: "not finished", Failed: "failed", Unsupported: "unsupported",
}

// Error makes an Errno usable as an error by itself, for errors.Is.
func (e Errno) Error() string { return errnoNames[e] }

// ErrWentBack says that messages have numbers that others had before: the stream
// was restored from a backup, say. What the inbox knows is about those others.
var ErrWentBack = errors.New("the stream went back in time")

// ErrTxLost says that a transaction was undone under the handler: by SQLite
// itself, or by a statement such as INSERT OR ROLLBACK. Nothing of the
// invocation counts then.
var ErrTxLost = errors.New("the transaction was undone")

// Error is a refusal with its text. errors.Is finds its Errno.
type Error struct {
	Errno Errno
	Text  string
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// Unwrap returns the Errno.
func (e *Error) Unwrap() error { return e.Errno }

// Errorf makes a refusal.
func Errorf(errno Errno, format string, args ...any) error {
	return &Error{Errno: errno, Text: fmt.Sprintf(format, args...)}
}

// ErrnoOf returns the kind of an error: its own if it has one, Cancelled for an
// ended context, otherwise Failed.
func ErrnoOf(err error) Errno {
	var errno Errno
	switch {
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Cancelled
	}
	return Failed
}
