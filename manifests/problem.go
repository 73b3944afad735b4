package manifests

import (
	"fmt"
	"strings"
)

// Problem is one thing that is wrong with a file, said so that its author can
// mend it. It is immutable once made.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`   // from 1; 0 when the problem is the whole file's
	Column  int    `json:"column,omitempty"` // from 1
	Field   string `json:"field,omitempty"`  // as a path, such as triggers[0].ack_wait
	Message string `json:"message"`          // what is wrong
	Hint    string `json:"hint,omitempty"`   // what to do
	Source  string `json:"source,omitempty"` // the line of the file
}

// Error formats the problem over several lines: place and message, the source
// line with a mark under the column, the hint.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	b.WriteString(": ")
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Message)
	if p.Source != "" {
		fmt.Fprintf(&b, "\n  %4d | %s", p.Line, p.Source)
		fmt.Fprintf(&b, "\n       | %s^", strings.Repeat(" ", max(0, p.Column-1)))
	}
	if p.Hint != "" {
		b.WriteString("\n  hint: " + p.Hint)
	}
	return b.String()
}

// Problems is everything that was found wrong with one file, in the order of
// the file. It is an error when it is not empty.
type Problems []*Problem

// Error formats all problems, one after another.
func (ps Problems) Error() string {
	texts := make([]string, len(ps))
	for i, p := range ps {
		texts[i] = p.Error()
	}
	return strings.Join(texts, "\n")
}

// err returns the problems as an error, nil when there are none.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}
