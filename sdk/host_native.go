//go:build !wasip1

package sdk

import (
	"context"
	"errors"
	"fmt"
)

// errNoHost says that a handler was called natively without a stand-in.
var errNoHost = errors.New("sdk: there is no host here; in a test, call the handler through package sdktest")

// Host stands in for the host when a handler runs natively, in tests. Package
// sdktest has one; implement it for something special.
type Host interface {
	LogRecord(ctx context.Context, level int, text string, attrs [][2]string)
	Exec(ctx context.Context, db, query string, args []any) (Result, error)
	Query(ctx context.Context, db, query string, args []any) (*Rows, error)
	Fetch(ctx context.Context, r *Request) (*Response, error)
	BlobPut(ctx context.Context, store, key string, o PutOptions, data []byte) (etag string, err error)
	BlobGet(ctx context.Context, store, key string) (BlobInfo, []byte, error)
	BlobDelete(ctx context.Context, store, key string) error
	BlobList(ctx context.Context, store, prefix, after string, limit int) ([]BlobInfo, error)
	KVGet(ctx context.Context, bucket, key string) (Entry, error)
	KVPut(ctx context.Context, bucket, key string, value []byte, mode KVMode, revision uint64) (uint64, error)
	KVDelete(ctx context.Context, bucket, key string) error
	KVKeys(ctx context.Context, bucket, prefix string, limit int) ([]string, error)
	Publish(ctx context.Context, m *Outgoing) (PubAck, error)
	Ask(ctx context.Context, q *Question) (*ServiceAnswer, error)
	Render(ctx context.Context, source []byte, targets []Target) (*Rendered, error)
	// Begin and End enclose the handling of one message of a batch.
	Begin(ctx context.Context, m *Msg) error
	End(ctx context.Context, m *Msg, err error) error
}

// KVMode says which of the three ways of setting a key is meant.
type KVMode int

// The ways of setting a key.
const (
	KVPut KVMode = iota
	KVCreate
	KVUpdate
)

type hostKey struct{}

// WithHost returns a context whose calls reach a stand-in.
func WithHost(ctx context.Context, h Host) context.Context {
	return context.WithValue(ctx, hostKey{}, h)
}

// BufferOf makes a buffer of bytes for a stand-in's answer.
func BufferOf(data []byte) Buffer { return Buffer{data: data, size: len(data)} }

// Handler returns the handler that the function registered, for stand-ins.
func Handler() func(ctx context.Context, b Batch) error { return handler }

func hostOf(ctx context.Context) (Host, error) {
	if h, ok := ctx.Value(hostKey{}).(Host); ok {
		return h, nil
	}
	return nil, errNoHost
}

func begin(ctx context.Context, m *Msg) error {
	h, err := hostOf(ctx)
	if err != nil {
		return err
	}
	return h.Begin(ctx, m)
}

func end(ctx context.Context, m *Msg, err error) error {
	h, missing := hostOf(ctx)
	if missing != nil {
		return missing
	}
	return h.End(ctx, m, err)
}

func (m *Msg) respond(a *Answer) error {
	if m.answer != nil {
		return &HostError{Errno: ErrConflict, Text: "the request is answered already"}
	}
	m.answer = a
	return nil
}

func logRecord(ctx context.Context, level int, text string, attrs [][2]string) {
	if h, err := hostOf(ctx); err == nil {
		h.LogRecord(ctx, level, text, attrs)
	}
}

func newBuffer(_ context.Context, data []byte) (Buffer, error) { return BufferOf(data), nil }

func (b Buffer) read(offset, n int) ([]byte, error) {
	return append([]byte{}, b.data[offset:offset+n]...), nil
}

func (b Buffer) close() error { return nil }

func sqlExec(ctx context.Context, db, query string, args []any) (Result, error) {
	h, err := hostOf(ctx)
	if err != nil {
		return Result{}, err
	}
	if _, ok := (frame{}).values(args); !ok {
		return Result{}, errArguments
	}
	return h.Exec(ctx, db, query, plain(args))
}

// sqlExecMany runs the rows one after another: the stand-in has no savepoint to
// undo them with.
func sqlExecMany(ctx context.Context, db, query string, rows [][]any) (Result, error) {
	var sum Result
	for i, row := range rows {
		r, err := sqlExec(ctx, db, query, row)
		if err != nil {
			return Result{}, fmt.Errorf("row %d: %w", i+1, err)
		}
		sum.LastInsertID, sum.RowsAffected = r.LastInsertID, sum.RowsAffected+r.RowsAffected
	}
	return sum, nil
}

func sqlQuery(ctx context.Context, db, query string, args []any) (*Rows, error) {
	h, err := hostOf(ctx)
	if err != nil {
		return nil, err
	}
	if _, ok := (frame{}).values(args); !ok {
		return nil, errArguments
	}
	return h.Query(ctx, db, query, plain(args))
}

// plain has texts in the place of pointers to them, for tests to compare.
func plain(args []any) []any {
	for i, a := range args {
		switch p, ok := a.(*string); {
		case ok && p == nil:
			args[i] = nil
		case ok:
			args[i] = *p
		}
	}
	return args
}

func fetch(ctx context.Context, r *Request) (*Response, error) {
	h, err := hostOf(ctx)
	if err != nil {
		return nil, err
	}
	q := *r
	q.Method = r.method()
	return h.Fetch(ctx, &q)
}

func fetchAll(ctx context.Context, requests []*Request) ([]Fetched, error) {
	results := make([]Fetched, len(requests))
	for i, r := range requests {
		results[i].Response, results[i].Err = fetch(ctx, r)
	}
	return results, nil
}

func blobPut(ctx context.Context, store, key string, o PutOptions, body Buffer) (string, error) {
	h, err := hostOf(ctx)
	if err != nil {
		return "", err
	}
	return h.BlobPut(ctx, store, key, o, body.data)
}

func blobGet(ctx context.Context, store, key string, offset, length int64) (BlobInfo, Buffer, error) {
	info, data, err := whole(ctx, store, key)
	if err != nil {
		return BlobInfo{}, Buffer{}, err
	}
	if offset < 0 || length < 0 || offset > int64(len(data)) {
		return BlobInfo{}, Buffer{}, &HostError{Errno: ErrInvalid, Text: "blob: the part begins behind the end"}
	}
	if data = data[offset:]; length > 0 {
		data = data[:min(length, int64(len(data)))]
	}
	return info, BufferOf(data), nil
}

func blobStat(ctx context.Context, store, key string) (BlobInfo, error) {
	info, _, err := whole(ctx, store, key)
	return info, err
}

func whole(ctx context.Context, store, key string) (BlobInfo, []byte, error) {
	h, err := hostOf(ctx)
	if err != nil {
		return BlobInfo{}, nil, err
	}
	return h.BlobGet(ctx, store, key)
}

func blobDelete(ctx context.Context, store, key string) error {
	h, err := hostOf(ctx)
	if err != nil {
		return err
	}
	return h.BlobDelete(ctx, store, key)
}

func blobList(ctx context.Context, store, prefix, after string, limit int) ([]BlobInfo, error) {
	h, err := hostOf(ctx)
	if err != nil {
		return nil, err
	}
	return h.BlobList(ctx, store, prefix, after, limit)
}

func kvGet(ctx context.Context, bucket, key string) (Entry, error) {
	h, err := hostOf(ctx)
	if err != nil {
		return Entry{}, err
	}
	return h.KVGet(ctx, bucket, key)
}

func kvSet(ctx context.Context, bucket, key string, value []byte, mode KVMode, revision uint64) (uint64, error) {
	h, err := hostOf(ctx)
	if err != nil {
		return 0, err
	}
	return h.KVPut(ctx, bucket, key, value, mode, revision)
}

func kvPut(ctx context.Context, bucket, key string, value []byte) (uint64, error) {
	return kvSet(ctx, bucket, key, value, KVPut, 0)
}

func kvCreate(ctx context.Context, bucket, key string, value []byte) (uint64, error) {
	return kvSet(ctx, bucket, key, value, KVCreate, 0)
}

func kvUpdate(ctx context.Context, bucket, key string, value []byte, revision uint64) (uint64, error) {
	return kvSet(ctx, bucket, key, value, KVUpdate, revision)
}

func kvDelete(ctx context.Context, bucket, key string) error {
	h, err := hostOf(ctx)
	if err != nil {
		return err
	}
	return h.KVDelete(ctx, bucket, key)
}

func kvKeys(ctx context.Context, bucket, prefix string, limit int) ([]string, error) {
	h, err := hostOf(ctx)
	if err != nil {
		return nil, err
	}
	return h.KVKeys(ctx, bucket, prefix, limit)
}

func publish(ctx context.Context, m *Outgoing) (PubAck, error) {
	h, err := hostOf(ctx)
	if err != nil {
		return PubAck{}, err
	}
	return h.Publish(ctx, m)
}

func ask(ctx context.Context, q *Question) (*ServiceAnswer, error) {
	h, err := hostOf(ctx)
	if err != nil {
		return nil, err
	}
	return h.Ask(ctx, q)
}

func render(ctx context.Context, source Buffer, targets []Target) (*Rendered, error) {
	h, err := hostOf(ctx)
	if err != nil {
		return nil, err
	}
	return h.Render(ctx, source.data, targets)
}
