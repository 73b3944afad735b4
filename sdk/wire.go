package sdk

import (
	"encoding/binary"
	"math"
	"slices"
)

// frame encodes what crosses the border: little-endian numbers, and texts and
// lists with their length in front. See ABI.md, Frames.
type frame []byte

func (f frame) u8(v uint8) frame   { return append(f, v) }
func (f frame) u32(v uint32) frame { return binary.LittleEndian.AppendUint32(f, v) }
func (f frame) u64(v uint64) frame { return binary.LittleEndian.AppendUint64(f, v) }

// str grows the frame once: this is the hot path of every statement.
func (f frame) str(s string) frame {
	at := len(f)
	f = slices.Grow(f, 4+len(s))[:at+4+len(s)]
	binary.LittleEndian.PutUint32(f[at:], uint32(len(s)))
	copy(f[at+4:], s)
	return f
}

// text is a text as a value.
func (f frame) text(s string) frame { return append(f, tagText).str(s) }
func (f frame) blob(b []byte) frame { return append(f.u32(uint32(len(b))), b...) }

func (f frame) pairs(h Header) frame {
	n := uint32(0)
	for _, values := range h {
		n += uint32(len(values))
	}
	f = f.u32(n)
	for name, values := range h {
		for _, v := range values {
			f = f.str(name).str(v)
		}
	}
	return f
}

// The tags of SQL values.
const (
	tagNull  = 0
	tagInt   = 1
	tagFloat = 2
	tagText  = 3
	tagBlob  = 4
)

// errArguments says what an argument can be.
var errArguments = &HostError{Errno: ErrInvalid, Text: "sql: an argument is not nil, an integer of 64 bits with a sign, bool, float64, string, *string or []byte"}

// values encodes the arguments of a statement; ok is false for a value that
// SQLite has not.
func (f frame) values(args []any) (_ frame, ok bool) {
	return f.u32(uint32(len(args))).listed(args)
}

// listed encodes values without their number.
func (f frame) listed(args []any) (_ frame, ok bool) {
	for _, a := range args {
		switch a := a.(type) {
		case nil:
			f = f.u8(tagNull)
		case int64:
			f = f.u8(tagInt).u64(uint64(a))
		case int:
			f = f.u8(tagInt).u64(uint64(a))
		case int8:
			f = f.u8(tagInt).u64(uint64(a))
		case int16:
			f = f.u8(tagInt).u64(uint64(a))
		case int32:
			f = f.u8(tagInt).u64(uint64(a))
		case uint8:
			f = f.u8(tagInt).u64(uint64(a))
		case uint16:
			f = f.u8(tagInt).u64(uint64(a))
		case uint32:
			f = f.u8(tagInt).u64(uint64(a))
		case uint:
			if f = f.u8(tagInt).u64(uint64(a)); uint64(a) > math.MaxInt64 {
				return f, false
			}
		case uint64:
			if f = f.u8(tagInt).u64(a); a > math.MaxInt64 {
				return f, false
			}
		case bool:
			n := uint64(0)
			if a {
				n = 1
			}
			f = f.u8(tagInt).u64(n)
		case float64:
			f = f.u8(tagFloat).u64(math.Float64bits(a))
		case string:
			f = f.text(a)
		case *string:
			if a == nil {
				f = f.u8(tagNull)
			} else {
				f = f.text(*a)
			}
		case []byte:
			f = f.u8(tagBlob).blob(a)
		default:
			return f, false
		}
	}
	return f, true
}

// reader decodes a frame of the host. The host is trusted to send whole
// frames; a short one reads as zeros.
type reader struct {
	b     []byte
	whole []byte // the memory of an answer, until it is released
}

func (r *reader) take(n uint32) []byte {
	if uint64(n) > uint64(len(r.b)) {
		r.b = nil
		return nil
	}
	t := r.b[:n]
	r.b = r.b[n:]
	return t
}

func (r *reader) u8() uint8 {
	if t := r.take(1); t != nil {
		return t[0]
	}
	return 0
}

func (r *reader) u32() uint32 {
	if t := r.take(4); t != nil {
		return binary.LittleEndian.Uint32(t)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if t := r.take(8); t != nil {
		return binary.LittleEndian.Uint64(t)
	}
	return 0
}

func (r *reader) str() string { return string(r.take(r.u32())) }

func (r *reader) blob() []byte { return append([]byte{}, r.take(r.u32())...) }

func (r *reader) pairs() Header {
	n := r.u32()
	if n == 0 {
		return nil
	}
	h := make(Header, n)
	for range n {
		k := r.str()
		h[k] = append(h[k], r.str())
	}
	return h
}

func (r *reader) value() any {
	switch r.u8() {
	case tagInt:
		return int64(r.u64())
	case tagFloat:
		return math.Float64frombits(r.u64())
	case tagText:
		return r.str()
	case tagBlob:
		return r.blob()
	}
	return nil
}
