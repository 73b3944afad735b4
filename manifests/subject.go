package manifests

import (
	"fmt"
	"strings"
)

// CheckSubject returns what is wrong with a subject, "" when nothing is. A
// literal subject has no wildcards; a pattern may have * and a last >. The
// rules are those of NATS, and the server takes some of what they forbid.
func CheckSubject(s string, literal bool) string {
	if s == "" {
		return "is empty"
	}
	if len(s) > 512 {
		return "is longer than 512 bytes"
	}
	tokens := strings.Split(s, ".")
	for i, t := range tokens {
		switch {
		case t == "":
			return "has an empty token (a dot too many)"
		case strings.ContainsAny(t, " \t\r\n\x00") || !printable(t):
			return "has a space or a control character"
		case literal && (t == "*" || t == ">"):
			return "has a wildcard where a plain subject is needed"
		case t == ">" && i != len(tokens)-1:
			return "has > before its end"
		}
	}
	return ""
}

func printable(s string) bool {
	for _, r := range s {
		if r < 0x20 || r == 0x7f || r == 0xFFFD {
			return false
		}
	}
	return true
}

// SubjectMatches reports whether a literal subject, or a narrower pattern, is
// taken by a pattern. Tokens are compared whole.
func SubjectMatches(pattern, subject string) bool {
	for {
		p, prest, pmore := strings.Cut(pattern, ".")
		s, srest, smore := strings.Cut(subject, ".")
		switch {
		case p == ">":
			return true
		case p != s && (p != "*" || s == ">"):
			return false
		case pmore != smore:
			return false
		case !pmore:
			return true
		}
		pattern, subject = prest, srest
	}
}

// SubjectsOverlap reports whether two patterns have a subject in common.
func SubjectsOverlap(a, b string) bool {
	for {
		x, arest, amore := strings.Cut(a, ".")
		y, brest, bmore := strings.Cut(b, ".")
		switch {
		case x == ">" || y == ">":
			return true
		case x != y && x != "*" && y != "*":
			return false
		case amore != bmore:
			return false
		case !amore:
			return true
		}
		a, b = arest, brest
	}
}

// ReservedSubject reports whether a subject or pattern reaches what is not for
// functions: the server's own subjects, inboxes and Pelton's control subjects.
func ReservedSubject(s string) bool {
	first, _, _ := strings.Cut(s, ".")
	return strings.HasPrefix(first, "$") || strings.HasPrefix(first, "_") || first == "pelton" || first == "*" || first == ">"
}

func subjectPattern(d *document, at, s string) {
	if msg := CheckSubject(placeholder.ReplaceAllString(s, "x"), false); msg != "" {
		d.fail(at, fmt.Sprintf("%q %s", s, msg), "write tokens joined by dots, such as video.ingested.>")
	}
	placeholders(d, at, s, "region")
}

func literalSubject(d *document, at, s string) {
	if msg := CheckSubject(s, true); msg != "" {
		d.fail(at, fmt.Sprintf("%q %s", s, msg), "write tokens joined by dots, such as dlq.{{subject}}")
	}
}

// Expand fills {{names}} in from the values; unknown names stay as they are.
func Expand(s string, values map[string]string) string {
	if !strings.Contains(s, "{{") {
		return s
	}
	return placeholder.ReplaceAllStringFunc(s, func(m string) string {
		name := placeholder.FindStringSubmatch(m)[1]
		if v, ok := values[name]; ok {
			return v
		}
		return m
	})
}
