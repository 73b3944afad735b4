package event

import (
	"errors"
	"strconv"
	"strings"

	"github.com/valyala/fastjson"
)

// reader copies what an event has out of the parser's memory. Its texts lie in one
// piece of memory, so that an event takes one allocation and not one for each: in
// a guest these are most of what an event costs.
type reader struct {
	values  [members]*fastjson.Value // nil for what the event does not have
	names   *[members]string
	text    strings.Builder
	scratch [32]byte
}

// keep returns a copy of a text.
func (r *reader) keep(b []byte) string {
	at := r.text.Len()
	r.text.Write(b)
	return r.text.String()[at:]
}

// raw returns a value as it is written in JSON.
func (r *reader) raw(v *fastjson.Value) string { return r.keep(v.MarshalTo(r.scratch[:0])) }

// string reads a text. has is false if the event does not have it.
func (r *reader) string(at member, into *string) (has bool, err error) {
	f := r.values[at]
	if f == nil || f.Type() == fastjson.TypeNull {
		return false, nil
	}
	b, err := f.StringBytes()
	if err != nil {
		return false, errors.New("decode event: " + r.names[at] + " is a " + f.Type().String() + " where a text is expected")
	}
	*into = r.keep(b)
	return true, nil
}

// array returns the items of a list of texts; none if the event does not have it.
func (r *reader) array(at member) ([]*fastjson.Value, error) {
	f := r.values[at]
	if f == nil || f.Type() == fastjson.TypeNull {
		return nil, nil
	}
	items, err := f.Array()
	if err != nil {
		return nil, notTexts(r.names[at])
	}
	return items, nil
}

func notTexts(name string) error {
	return errors.New("decode event: " + name + " is not a list of texts")
}

// joined reads a list of texts as one, with spaces between.
func (r *reader) joined(at member) (string, error) {
	items, err := r.array(at)
	if err != nil {
		return "", err
	}
	begin := r.text.Len()
	for i, item := range items {
		b, err := item.StringBytes()
		if err != nil {
			return "", notTexts(r.names[at])
		}
		if i > 0 {
			r.text.WriteByte(' ')
		}
		r.text.Write(b)
	}
	return r.text.String()[begin:], nil
}

// list reads a list of texts.
func (r *reader) list(at member) ([]string, error) {
	items, err := r.array(at)
	if len(items) == 0 {
		return nil, err
	}
	texts := make([]string, len(items))
	for i, item := range items {
		b, err := item.StringBytes()
		if err != nil {
			return nil, notTexts(r.names[at])
		}
		texts[i] = r.keep(b)
	}
	return texts, nil
}

// identifier reads an id: a text as it is, or a whole number with all its
// digits, within 64 bits.
func (r *reader) identifier(name string) (string, error) {
	f := r.values[id]
	if f == nil {
		return "", errors.New("decode event: there is no " + name)
	}
	switch f.Type() {
	case fastjson.TypeString:
		if b := f.GetStringBytes(); len(b) > 0 && len(b) <= 256 {
			return r.keep(b), nil
		}
		return "", errors.New("decode event: " + name + " is empty or longer than 256 bytes")
	case fastjson.TypeNumber:
		raw := r.raw(f)
		n, err := strconv.ParseInt(raw, 10, 64)
		if err == nil && raw[0] >= '1' && raw[0] <= '9' {
			return raw, nil // there is one form of it
		}
		if err == nil {
			return r.keep(strconv.AppendInt(r.scratch[:0], n, 10)), nil
		}
		if n, err := strconv.ParseUint(raw, 10, 64); err == nil {
			return r.keep(strconv.AppendUint(r.scratch[:0], n, 10)), nil
		}
		return "", errors.New("decode event: " + name + " " + shortened(raw) + " is not a whole number of 64 bits")
	}
	return "", errors.New("decode event: " + name + " is a " + f.Type().String() + " where a whole number or a text is expected")
}

func shortened(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}
