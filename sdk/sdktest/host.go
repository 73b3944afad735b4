//go:build !wasip1

// Package sdktest runs handlers natively, in plain go test: it stands in for
// the host, with blobs and keys in memory, answers that the test gives for HTTP
// and SQL, and a record of what the handler did.
//
//	h := sdktest.New()
//	h.OnFetch = func(r *sdk.Request) (*sdk.Response, error) { ... }
//	got := h.Handle(t.Context(), handle, sdk.NewMsg("a.b", nil, []byte("{}")))
//	if got[0].Disposition != sdk.DispositionAck { ... }
package sdktest

import (
	"context"
	"maps"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pelton-run/pelton/sdk"
)

// Statement is one SQL statement that a handler ran.
type Statement struct {
	Database string
	Query    string
	Args     []any
}

// Blob is one stored blob.
type Blob struct {
	ContentType string
	Data        []byte
	Metadata    map[string]string
	ETag        string
}

func (b Blob) info(key string) sdk.BlobInfo {
	return sdk.BlobInfo{Key: key, ContentType: b.ContentType, Size: int64(len(b.Data)), ETag: b.ETag, Metadata: b.Metadata}
}

// Record is one log record.
type Record struct {
	Level int // of log/slog
	Text  string
	Attrs [][2]string
}

// Outcome is what became of one message.
type Outcome struct {
	Disposition sdk.Disposition
	Delay       time.Duration
	Reason      string
}

// Host stands in for the host. Set the functions before the handler runs; a
// call without one fails. It is safe for concurrent use.
type Host struct {
	OnFetch  func(r *sdk.Request) (*sdk.Response, error)
	OnAsk    func(q *sdk.Question) (*sdk.ServiceAnswer, error)
	OnExec   func(s Statement) (sdk.Result, error) // nil: every statement changes one row
	OnQuery  func(s Statement) (*sdk.Rows, error)
	OnRender func(source []byte, targets []sdk.Target) (*sdk.Rendered, error)

	mu         sync.Mutex
	puts       int
	Published  []sdk.Outgoing
	Statements []Statement
	Requests   []sdk.Request
	Blobs      map[string]Blob   // by store/key
	Keys       map[string]string // by bucket/key
	Log        []Record
	revision   uint64
	outcomes   map[*sdk.Msg]Outcome
}

var _ sdk.Host = (*Host)(nil)

// New makes a host without anything in it.
func New() *Host {
	return &Host{Blobs: map[string]Blob{}, Keys: map[string]string{}, outcomes: map[*sdk.Msg]Outcome{}}
}

// Handle runs a handler for single messages and returns what became of each.
func (h *Host) Handle(ctx context.Context, f func(context.Context, *sdk.Msg) error, msgs ...*sdk.Msg) []Outcome {
	return h.HandleBatch(ctx, func(ctx context.Context, b sdk.Batch) error { return b.Each(ctx, f) }, msgs...)
}

// HandleBatch runs a handler for batches and returns what became of each message.
func (h *Host) HandleBatch(ctx context.Context, f func(context.Context, sdk.Batch) error, msgs ...*sdk.Msg) []Outcome {
	err := f(sdk.WithHost(ctx, h), sdk.NewBatch(msgs...))
	rest := outcomeOf(err)
	out := make([]Outcome, len(msgs))
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, m := range msgs {
		var settled bool
		if out[i], settled = h.outcomes[m]; !settled {
			out[i] = rest
		}
	}
	return out
}

func outcomeOf(err error) Outcome {
	d, delay, reason := sdk.DispositionOf(err)
	return Outcome{d, delay, reason}
}

// Begin implements sdk.Host.
func (h *Host) Begin(context.Context, *sdk.Msg) error { return nil }

// End implements sdk.Host.
func (h *Host) End(_ context.Context, m *sdk.Msg, err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.outcomes[m] = outcomeOf(err)
	return nil
}

func refuse(errno sdk.Errno, text string) error { return &sdk.HostError{Errno: errno, Text: text} }

// LogRecord implements sdk.Host.
func (h *Host) LogRecord(_ context.Context, level int, text string, attrs [][2]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Log = append(h.Log, Record{level, text, attrs})
}

// Exec implements sdk.Host.
func (h *Host) Exec(_ context.Context, db, query string, args []any) (sdk.Result, error) {
	s := Statement{db, query, args}
	h.mu.Lock()
	h.Statements = append(h.Statements, s)
	h.mu.Unlock()
	if h.OnExec == nil {
		return sdk.Result{RowsAffected: 1}, nil
	}
	return h.OnExec(s)
}

// Query implements sdk.Host.
func (h *Host) Query(_ context.Context, db, query string, args []any) (*sdk.Rows, error) {
	s := Statement{db, query, args}
	h.mu.Lock()
	h.Statements = append(h.Statements, s)
	h.mu.Unlock()
	if h.OnQuery == nil {
		return nil, refuse(sdk.ErrDenied, "sdktest: OnQuery is not set")
	}
	return h.OnQuery(s)
}

// Fetch implements sdk.Host.
func (h *Host) Fetch(_ context.Context, r *sdk.Request) (*sdk.Response, error) {
	h.mu.Lock()
	h.Requests = append(h.Requests, *r)
	h.mu.Unlock()
	if h.OnFetch == nil {
		return nil, refuse(sdk.ErrDenied, "sdktest: OnFetch is not set")
	}
	return h.OnFetch(r)
}

// BlobPut implements sdk.Host.
func (h *Host) BlobPut(_ context.Context, store, key string, o sdk.PutOptions, data []byte) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, there := h.Blobs[store+"/"+key]
	if o.If == sdk.IfNew && there || o.If != "" && o.If != sdk.IfNew && o.If != before.ETag {
		return "", refuse(sdk.ErrConflict, "blob: "+key+" is there already, or is another one than the condition says")
	}
	h.puts++
	b := Blob{o.ContentType, append([]byte{}, data...), maps.Clone(o.Metadata), strconv.Itoa(h.puts)}
	h.Blobs[store+"/"+key] = b
	return b.ETag, nil
}

// BlobGet implements sdk.Host.
func (h *Host) BlobGet(_ context.Context, store, key string) (sdk.BlobInfo, []byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, ok := h.Blobs[store+"/"+key]
	if !ok {
		return sdk.BlobInfo{}, nil, refuse(sdk.ErrNotFound, "blob: "+key+" does not exist")
	}
	return b.info(key), b.Data, nil
}

// BlobDelete implements sdk.Host.
func (h *Host) BlobDelete(_ context.Context, store, key string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.Blobs, store+"/"+key)
	return nil
}

// BlobList implements sdk.Host.
func (h *Host) BlobList(_ context.Context, store, prefix, after string, limit int) ([]sdk.BlobInfo, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var infos []sdk.BlobInfo
	for name, b := range h.Blobs {
		key, ok := strings.CutPrefix(name, store+"/")
		if ok && strings.HasPrefix(key, prefix) && key > after {
			infos = append(infos, b.info(key))
		}
	}
	sort.Slice(infos, func(i, j int) bool { return infos[i].Key < infos[j].Key })
	return infos[:min(limit, len(infos))], nil
}

// KVGet implements sdk.Host. All keys share one revision, that of the last
// change.
func (h *Host) KVGet(_ context.Context, bucket, key string) (sdk.Entry, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v, ok := h.Keys[bucket+"/"+key]
	if !ok {
		return sdk.Entry{}, refuse(sdk.ErrNotFound, "kv: "+key+" does not exist")
	}
	return sdk.Entry{Value: []byte(v), Revision: h.revision}, nil
}

// KVPut implements sdk.Host.
func (h *Host) KVPut(_ context.Context, bucket, key string, value []byte, mode sdk.KVMode, revision uint64) (uint64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, exists := h.Keys[bucket+"/"+key]
	if mode == sdk.KVCreate && exists || mode == sdk.KVUpdate && (!exists || revision != h.revision) {
		return 0, refuse(sdk.ErrConflict, "kv: "+key+" is at another revision")
	}
	h.revision++
	h.Keys[bucket+"/"+key] = string(value)
	return h.revision, nil
}

// KVDelete implements sdk.Host.
func (h *Host) KVDelete(_ context.Context, bucket, key string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.Keys, bucket+"/"+key)
	return nil
}

// KVKeys implements sdk.Host.
func (h *Host) KVKeys(_ context.Context, bucket, prefix string, limit int) ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var keys []string
	for name := range h.Keys {
		if key, ok := strings.CutPrefix(name, bucket+"/"); ok && strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	sort.Strings(keys)
	return keys[:min(limit, len(keys))], nil
}

// Ask implements sdk.Host with OnAsk.
func (h *Host) Ask(_ context.Context, q *sdk.Question) (*sdk.ServiceAnswer, error) {
	if h.OnAsk == nil {
		return nil, refuse(sdk.ErrDenied, "sdktest: OnAsk is not set")
	}
	return h.OnAsk(q)
}

// Publish implements sdk.Host.
func (h *Host) Publish(_ context.Context, m *sdk.Outgoing) (sdk.PubAck, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Published = append(h.Published, *m)
	return sdk.PubAck{Stream: "TEST", Sequence: uint64(len(h.Published))}, nil
}

// Render implements sdk.Host.
func (h *Host) Render(_ context.Context, source []byte, targets []sdk.Target) (*sdk.Rendered, error) {
	if h.OnRender == nil {
		return nil, refuse(sdk.ErrDenied, "sdktest: OnRender is not set")
	}
	return h.OnRender(source, targets)
}

// Response makes an answer for OnFetch.
func Response(status int, header sdk.Header, body []byte) *sdk.Response {
	return &sdk.Response{Status: status, Header: header, Body: sdk.BufferOf(body)}
}
