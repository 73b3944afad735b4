package engine

import (
	"bytes"
	"strings"
)

// maxLine bounds a line of a guest's output; what is longer is cut into several.
const maxLine = 4 << 10

// lines takes what a guest writes to stdout and stderr and passes it on line by
// line.
type lines struct {
	to      func(line string) // nil between invocations
	partial []byte
	cause   string // the first line of a Go guest's panic
}

// Write implements io.Writer; it never fails.
func (l *lines) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		near := b[:min(len(b), maxLine-len(l.partial)+1)]
		i := bytes.IndexByte(near, '\n')
		end := i < 0
		if end {
			i = len(near)
		}
		room := min(i, maxLine-len(l.partial))
		l.partial = append(l.partial, b[:room]...)
		if len(l.partial) == maxLine || !end && room == i {
			l.flush()
		}
		b = b[room:]
		if !end && room == i {
			b = b[1:]
		}
	}
	return n, nil
}

// flush passes on what is there of a line.
func (l *lines) flush() {
	line := strings.ToValidUTF8(string(l.partial), "\uFFFD")
	l.partial = l.partial[:0]
	if line == "" {
		return
	}
	if l.cause == "" && (strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:")) {
		l.cause = line
	}
	if l.to != nil {
		l.to(line)
	}
}

// first returns the line that says why the guest gave up, "" if none does.
func (l *lines) first() string {
	l.flush()
	return l.cause
}
