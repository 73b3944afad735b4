package engine

import (
	"encoding/binary"
	"math"
	"time"
	"unicode/utf8"

	"github.com/pelton-run/pelton/host"
)

// frame encodes what crosses the border. sdk/ABI.md, Frames, is its contract;
// the SDK has the other half.
type frame []byte

func (f frame) u8(v uint8) frame    { return append(f, v) }
func (f frame) u32(v uint32) frame  { return binary.LittleEndian.AppendUint32(f, v) }
func (f frame) u64(v uint64) frame  { return binary.LittleEndian.AppendUint64(f, v) }
func (f frame) str(s string) frame  { return append(f.u32(uint32(len(s))), s...) }
func (f frame) blob(b []byte) frame { return append(f.u32(uint32(len(b))), b...) }

func (f frame) headers(h map[string][]string) frame {
	n := 0
	for _, values := range h {
		n += len(values)
	}
	f = f.u32(uint32(n))
	for name, values := range h {
		for _, v := range values {
			f = f.str(name).str(v)
		}
	}
	return f
}

func (f frame) pairs(pairs [][2]string) frame {
	f = f.u32(uint32(len(pairs)))
	for _, p := range pairs {
		f = f.str(p[0]).str(p[1])
	}
	return f
}

func (f frame) buffer(b host.Buffered) frame { return f.u32(uint32(b.Handle)).u64(uint64(b.Size)) }

func (f frame) message(id uint32, m *host.Message) frame {
	f = f.u32(id).str(m.Trigger).str(m.Subject).str(m.Reply).headers(m.Headers).blob(m.Data)
	f = f.str(m.Stream).str(m.Consumer).u64(m.StreamSeq).u64(m.ConsumerSeq)
	return f.u64(m.NumDelivered).u64(m.NumPending).u64(uint64(m.Timestamp.UnixNano()))
}

// The tags of SQL values.
const (
	tagNull  = 0
	tagInt   = 1
	tagFloat = 2
	tagText  = 3
	tagBlob  = 4
)

func (f frame) value(v any) frame {
	switch v := v.(type) {
	case int64:
		return f.u8(tagInt).u64(uint64(v))
	case float64:
		return f.u8(tagFloat).u64(math.Float64bits(v))
	case string:
		return f.u8(tagText).str(v)
	case []byte:
		return f.u8(tagBlob).blob(v)
	}
	return f.u8(tagNull)
}

func (f frame) changed(r host.Result) frame {
	return f.u64(uint64(r.LastInsertID)).u64(uint64(r.RowsAffected))
}

func (f frame) rows(r *host.Rows) frame {
	f = f.u32(uint32(len(r.Columns)))
	for _, c := range r.Columns {
		f = f.str(c)
	}
	f = f.u32(uint32(len(r.Values)))
	for _, v := range r.Values {
		f = f.value(v)
	}
	return f
}

func (f frame) blobInfo(b host.BlobInfo) frame {
	return f.str(b.Key).str(b.ContentType).u64(uint64(b.Size)).u64(uint64(b.Modified.UnixNano())).str(b.ETag).pairs(b.Metadata)
}

// answer encodes what an operation answered.
func (f frame) answer(v any) frame {
	switch v := v.(type) {
	case *host.Rows:
		return f.rows(v)
	case *host.HTTPAnswer:
		return f.u32(uint32(v.Response.Status)).pairs(v.Response.Headers).buffer(v.Body)
	case []host.HTTPResult:
		f = f.u32(uint32(len(v)))
		for _, r := range v {
			if r.Err != nil {
				f = f.u32(uint32(host.ErrnoOf(r.Err))).str(r.Err.Error())
			} else {
				f = f.u32(0).answer(r.Answer)
			}
		}
	case *host.ServiceReply:
		return f.pairs(v.Answer.Headers).buffer(v.Body)
	case *host.BlobAnswer:
		return f.blobInfo(v.Info).buffer(v.Body)
	case *host.BlobInfo:
		return f.blobInfo(*v)
	case string:
		return f.str(v)
	case []host.BlobInfo:
		f = f.u32(uint32(len(v)))
		for _, b := range v {
			f = f.blobInfo(b)
		}
	case *host.Entry:
		return f.u64(v.Revision).blob(v.Value)
	case uint64:
		return f.u64(v)
	case []string:
		f = f.u32(uint32(len(v)))
		for _, s := range v {
			f = f.str(s)
		}
	case host.PubAck:
		duplicate := uint8(0)
		if v.Duplicate {
			duplicate = 1
		}
		return f.str(v.Stream).u64(v.Sequence).u8(duplicate)
	case *host.ImageAnswer:
		f = f.str(v.Rendered.Format).u32(uint32(v.Rendered.Width)).u32(uint32(v.Rendered.Height)).u32(uint32(len(v.Pictures)))
		for i, b := range v.Pictures {
			p := v.Rendered.Pictures[i]
			f = f.u32(uint32(p.Width)).u32(uint32(p.Height)).buffer(b)
		}
	}
	return f
}

// reader decodes a frame of a guest, which may hold anything. Texts are copied
// out of the guest's memory. After a fault everything reads as zero, and ok
// reports it.
type reader struct {
	b     []byte
	fault bool
}

// ok reports whether the frame was read whole, without a fault and to its end.
func (r *reader) ok() bool { return !r.fault && len(r.b) == 0 }

func (r *reader) take(n uint32) []byte {
	if uint64(n) > uint64(len(r.b)) {
		r.b, r.fault = nil, true
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

func (r *reader) blob() []byte {
	t := r.take(r.u32())
	return append(make([]byte, 0, len(t)), t...)
}

// str reads a text; one that is not UTF-8 is a fault.
func (r *reader) str() string { return r.valid(string(r.take(r.u32()))) }

// maxCopied is up to which size the arguments of a statement are copied as a whole.
const maxCopied = 16 << 10

// part reads a text out of a copy of the frame's end, which is one allocation for
// many texts; without a copy it is like str.
func (r *reader) part(copied string) string {
	if copied == "" {
		return r.str()
	}
	n := len(r.take(r.u32()))
	end := len(copied) - len(r.b)
	return r.valid(copied[end-n : end])
}

func (r *reader) valid(s string) string {
	if !utf8.ValidString(s) {
		r.fault = true
		return ""
	}
	return s
}

// The longest lists of a guest's frames.
const (
	maxArguments = 32_766 // SQLite's own limit of a statement's
	maxPairs     = 4096
	maxTargets   = 256
	maxRequests  = 1000

	// maxManyArguments is for all rows of sql_exec_many. A value of one byte in a
	// frame is 16 in the host.
	maxManyArguments = 1 << 20
)

// count reads the length of a list. Each element has at least size bytes, so
// that a list cannot claim more than the frame holds; what the host makes of one
// takes more, so that lists have a limit too.
func (r *reader) count(size, most int) int {
	n := r.u32()
	if uint64(n)*uint64(size) > uint64(len(r.b)) || uint64(n) > uint64(most) {
		r.b, r.fault = nil, true
		return 0
	}
	return int(n)
}

func (r *reader) pairs() [][2]string {
	n := r.count(8, maxPairs)
	pairs := make([][2]string, 0, n)
	for range n {
		pairs = append(pairs, [2]string{r.str(), r.str()})
	}
	return pairs
}

func (r *reader) headers() map[string][]string {
	pairs := r.pairs()
	if len(pairs) == 0 {
		return nil
	}
	h := make(map[string][]string, len(pairs))
	for _, p := range pairs {
		h[p[0]] = append(h[p[0]], p[1])
	}
	return h
}

func (r *reader) values(most int) []any {
	n := r.count(1, most)
	values := make([]any, 0, n)
	copied := ""
	if len(r.b) <= maxCopied {
		copied = string(r.b)
	}
	for range n {
		switch r.u8() {
		case tagNull:
			values = append(values, nil)
		case tagInt:
			values = append(values, int64(r.u64()))
		case tagFloat:
			values = append(values, math.Float64frombits(r.u64()))
		case tagText:
			values = append(values, r.part(copied))
		case tagBlob:
			values = append(values, r.blob())
		default:
			r.fault = true
		}
	}
	return values
}

func (r *reader) targets() []host.Target {
	n := r.count(16, maxTargets)
	targets := make([]host.Target, 0, n)
	for range n {
		targets = append(targets, host.Target{Width: int(r.u32()), Height: int(r.u32()), Format: r.str(), Quality: int(r.u32())})
	}
	return targets
}

// millis makes a duration of the milliseconds that a guest gave, within bounds.
func millis(ms int64) time.Duration {
	const most = int64(365 * 24 * time.Hour / time.Millisecond)
	return time.Duration(min(max(ms, 0), most)) * time.Millisecond
}
