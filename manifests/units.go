package manifests

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// Duration is a length of time, written with a unit: 250ms, 30s, 1h30m, 7d.
// A number without a unit is refused: elsewhere it has been read as nanoseconds.
type Duration time.Duration

// MaxDuration bounds every duration of a manifest: ten years.
const MaxDuration = Duration(3650 * 24 * time.Hour)

const durationHint = "write a number with a unit, such as 250ms, 30s, 5m, 2h or 7d"

// Std returns the duration as the standard library's.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String formats the duration in the form that [ParseDuration] reads.
func (d Duration) String() string {
	if d != 0 && d%Duration(24*time.Hour) == 0 {
		return strconv.FormatInt(int64(d/Duration(24*time.Hour)), 10) + "d"
	}
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText writes the duration with its unit.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

var durationPart = regexp.MustCompile(`^(\d+(?:\.\d+)?)(ms|s|m|h|d)`)

// ParseDuration reads one or more numbers, each with its unit (ms, s, m, h, d).
// Negative values, missing units and values above [MaxDuration] are refused.
func ParseDuration(s string) (Duration, error) {
	rest, total := s, 0.0
	for rest != "" {
		part := durationPart.FindStringSubmatch(rest)
		if part == nil {
			return 0, durationError(s)
		}
		n, err := strconv.ParseFloat(part[1], 64)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration", s)
		}
		total += n * float64(durationUnits[part[2]])
		rest = rest[len(part[0]):]
	}
	if s == "" {
		return 0, fmt.Errorf("is empty")
	}
	if total > float64(MaxDuration) {
		return 0, fmt.Errorf("%s is above the maximum of %s", s, MaxDuration)
	}
	return Duration(math.Round(total)), nil
}

var durationUnits = map[string]time.Duration{
	"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
}

func durationError(s string) error {
	if _, err := strconv.ParseFloat(s, 64); err == nil && !strings.HasPrefix(s, "-") {
		return fmt.Errorf("%s has no unit", s)
	}
	if strings.HasPrefix(s, "-") {
		return fmt.Errorf("%s is negative", s)
	}
	return fmt.Errorf("%q is not a duration", s)
}

// UnmarshalYAML reads a duration from its node.
func (d *Duration) UnmarshalYAML(n ast.Node) error {
	return unmarshalUnit(n, d, ParseDuration, durationHint)
}

// Size is a number of bytes, written with a binary unit: 512B, 64KiB, 16MiB, 4GiB.
type Size int64

const sizeHint = "write a whole number with a unit, such as 512B, 64KiB, 16MiB or 4GiB"

// String formats the size in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return "0B"
}

// MarshalText writes the size with its unit.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

var sizeUnits = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// ParseSize reads a whole number with a binary unit.
func ParseSize(s string) (Size, error) {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/u.bytes {
			break
		}
		return Size(n * u.bytes), nil
	}
	if _, err := strconv.Atoi(s); err == nil {
		return 0, fmt.Errorf("%s has no unit", s)
	}
	return 0, fmt.Errorf("%q is not a size", s)
}

// UnmarshalYAML reads a size from its node.
func (s *Size) UnmarshalYAML(n ast.Node) error { return unmarshalUnit(n, s, ParseSize, sizeHint) }

// Rate is a number of bytes a second, written 64KiB/s.
type Rate int64

const rateHint = "write a size for each second, such as 64KiB/s"

// MarshalText writes the rate with its unit.
func (r Rate) MarshalText() ([]byte, error) { return []byte(Size(r).String() + "/s"), nil }

// ParseRate reads a size followed by /s.
func ParseRate(s string) (Rate, error) {
	size, ok := strings.CutSuffix(s, "/s")
	if !ok {
		return 0, fmt.Errorf("%q is not a rate", s)
	}
	n, err := ParseSize(size)
	return Rate(n), err
}

// UnmarshalYAML reads a rate from its node.
func (r *Rate) UnmarshalYAML(n ast.Node) error { return unmarshalUnit(n, r, ParseRate, rateHint) }

// Pixels is a number of pixels, written 800k or 50M (decimal: 50M = 50·10⁶).
type Pixels int64

const pixelsHint = "write a whole number with k or M, such as 800k or 50M"

// MarshalText writes the number with its unit.
func (p Pixels) MarshalText() ([]byte, error) {
	if p%1e6 == 0 {
		return fmt.Appendf(nil, "%dM", p/1e6), nil
	}
	return fmt.Appendf(nil, "%dk", p/1e3), nil
}

// ParsePixels reads a whole number with k or M.
func ParsePixels(s string) (Pixels, error) {
	factor := Pixels(0)
	digits := s
	if d, ok := strings.CutSuffix(s, "M"); ok {
		digits, factor = d, 1e6
	} else if d, ok := strings.CutSuffix(s, "k"); ok {
		digits, factor = d, 1e3
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || factor == 0 || n < 0 {
		return 0, fmt.Errorf("%q is not a number of pixels", s)
	}
	return Pixels(n) * factor, nil
}

// UnmarshalYAML reads a number of pixels from its node.
func (p *Pixels) UnmarshalYAML(n ast.Node) error {
	return unmarshalUnit(n, p, ParsePixels, pixelsHint)
}

// Share is a part of a whole, written 5% and held as 0.05.
type Share float64

const shareHint = "write a percentage, such as 5%"

// MarshalText writes the share as a percentage.
func (s Share) MarshalText() ([]byte, error) {
	return []byte(strconv.FormatFloat(float64(s)*100, 'g', -1, 64) + "%"), nil
}

// ParseShare reads a percentage from 0% to 100%.
func ParseShare(s string) (Share, error) {
	digits, ok := strings.CutSuffix(s, "%")
	n, err := strconv.ParseFloat(digits, 64)
	if !ok || err != nil || !(n >= 0 && n <= 100) {
		return 0, fmt.Errorf("%q is not a percentage from 0%% to 100%%", s)
	}
	return Share(n / 100), nil
}

// UnmarshalYAML reads a share from its node.
func (s *Share) UnmarshalYAML(n ast.Node) error { return unmarshalUnit(n, s, ParseShare, shareHint) }

// Switch is on or off.
type Switch bool

// MarshalText writes on or off.
func (s Switch) MarshalText() ([]byte, error) {
	if s {
		return []byte("on"), nil
	}
	return []byte("off"), nil
}

// ParseSwitch reads on, off, true or false.
func ParseSwitch(s string) (Switch, error) {
	switch s {
	case "on", "true":
		return true, nil
	case "off", "false":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither on nor off", s)
}

// UnmarshalYAML reads a switch from its node.
func (s *Switch) UnmarshalYAML(n ast.Node) error {
	return unmarshalUnit(n, s, ParseSwitch, "write on or off")
}

// unmarshalUnit parses the text of a scalar node, and names the node's place
// when it does not parse.
func unmarshalUnit[T any](n ast.Node, into *T, parse func(string) (T, error), hint string) error {
	text, ok := scalarText(n)
	if !ok {
		return problemAt(n, "is not a single value", hint)
	}
	v, err := parse(text)
	if err != nil {
		return problemAt(n, err.Error(), hint)
	}
	*into = v
	return nil
}

// scalarText returns the text of a scalar as it was written, without quotes.
func scalarText(n ast.Node) (string, bool) {
	scalar, ok := n.(ast.ScalarNode)
	if !ok {
		return "", false
	}
	if s, ok := scalar.(*ast.StringNode); ok {
		return s.Value, true
	}
	return strings.TrimSpace(scalar.GetToken().Value), true
}

// problemAt makes a problem at a node; file, field and source are filled in by
// the decoder, which knows them.
func problemAt(n ast.Node, message, hint string) *Problem {
	pos := n.GetToken().Position
	return &Problem{Line: pos.Line, Column: pos.Column, Message: message, Hint: hint}
}
