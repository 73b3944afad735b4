//go:build wasip1

package sdk

import (
	"context"
	"sync"
	"time"
	"unsafe"
)

// The imports. A call that the program does not use is not imported, so that
// the module's imports say what it can ask for.

//go:wasmimport pelton delivery_read
func hostDeliveryRead(first, count uint32, buf unsafe.Pointer, capacity uint32) int32

//go:wasmimport pelton delivery_begin
func hostDeliveryBegin(id uint32) int32

//go:wasmimport pelton delivery_end
func hostDeliveryEnd(id, disposition uint32, delay int64, reason string) int32

//go:wasmimport pelton respond
func hostRespond(id uint32, buf unsafe.Pointer, size uint32) int32

//go:wasmimport pelton log
func hostLog(id uint32, level int32, buf unsafe.Pointer, size uint32)

//go:wasmimport pelton last_error
func hostLastError(buf unsafe.Pointer, capacity uint32) int32

//go:wasmimport pelton result
func hostResult(buf unsafe.Pointer, capacity uint32) int32

//go:wasmimport pelton op_result
func hostOpResult(ticket int32, buf unsafe.Pointer, capacity uint32) int32

//go:wasmimport pelton op_cancel
func hostOpCancel(ticket int32) int32

//go:wasmimport pelton await
func hostAwait(nanoseconds int64)

//go:wasmimport pelton ready
func hostReady(buf unsafe.Pointer, capacity uint32) int32

//go:wasmimport pelton buffer_new
func hostBufferNew(id uint32, data unsafe.Pointer, size uint32) int32

//go:wasmimport pelton buffer_read
func hostBufferRead(id uint32, handle int32, offset uint32, buf unsafe.Pointer, capacity uint32) int32

//go:wasmimport pelton buffer_close
func hostBufferClose(id uint32, handle int32) int32

//go:wasmimport pelton sql_exec
func hostSQLExec(id uint32, req unsafe.Pointer, size uint32, buf unsafe.Pointer, capacity uint32) int32

//go:wasmimport pelton sql_exec_many
//go:noescape
func hostSQLExecMany(id uint32, req unsafe.Pointer, size uint32, buf unsafe.Pointer, capacity uint32) int32

//go:wasmimport pelton sql_query
func hostSQLQuery(id uint32, req unsafe.Pointer, size uint32, buf unsafe.Pointer, capacity uint32) int32

//go:wasmimport pelton http_start
func hostHTTPStart(id uint32, req unsafe.Pointer, size uint32, body int32) int32

//go:wasmimport pelton http_start_all
func hostHTTPStartAll(id uint32, req unsafe.Pointer, size uint32) int32

//go:wasmimport pelton blob_put_start
func hostBlobPutStart(id uint32, req unsafe.Pointer, size uint32, body int32) int32

//go:wasmimport pelton blob_get_start
func hostBlobGetStart(id uint32, req unsafe.Pointer, size uint32) int32

//go:wasmimport pelton blob_stat_start
func hostBlobStatStart(id uint32, req unsafe.Pointer, size uint32) int32

//go:wasmimport pelton blob_delete_start
func hostBlobDeleteStart(id uint32, req unsafe.Pointer, size uint32) int32

//go:wasmimport pelton blob_list_start
func hostBlobListStart(id uint32, req unsafe.Pointer, size uint32) int32

//go:wasmimport pelton kv_get_start
func hostKVGetStart(id uint32, req unsafe.Pointer, size uint32) int32

//go:wasmimport pelton kv_put_start
func hostKVPutStart(id uint32, req unsafe.Pointer, size uint32) int32

//go:wasmimport pelton kv_create_start
func hostKVCreateStart(id uint32, req unsafe.Pointer, size uint32) int32

//go:wasmimport pelton kv_update_start
func hostKVUpdateStart(id uint32, req unsafe.Pointer, size uint32) int32

//go:wasmimport pelton kv_delete_start
func hostKVDeleteStart(id uint32, req unsafe.Pointer, size uint32) int32

//go:wasmimport pelton kv_keys_start
func hostKVKeysStart(id uint32, req unsafe.Pointer, size uint32) int32

//go:wasmimport pelton publish_start
func hostPublishStart(id uint32, req unsafe.Pointer, size uint32) int32

//go:wasmimport pelton request_start
func hostRequestStart(id uint32, req unsafe.Pointer, size uint32) int32

//go:wasmimport pelton image_start
func hostImageStart(id uint32, req unsafe.Pointer, size uint32, source int32) int32

// scratch takes the host's answers and request is where frames are built. Whoever
// uses one takes it out and puts it back: an allocation may let another goroutine
// run.
var (
	scratch = make([]byte, 16<<10)
	request = make(frame, 0, 16<<10)
)

func takeScratch() []byte {
	b := scratch
	scratch = nil
	if b == nil {
		b = make([]byte, 16<<10)
	}
	return b
}

// newRequest begins a frame.
func newRequest() frame {
	f := request
	request = nil
	return f[:0]
}

func at(b []byte) (unsafe.Pointer, uint32) {
	return unsafe.Pointer(unsafe.SliceData(b)), uint32(len(b))
}

// refusalText takes the text of the last refusal: at once, since the next call of
// another goroutine may be refused too.
var refusalText = make([]byte, 1024)

// refusal makes an error of a negative result.
func refusal(n int32) error {
	text := refusalText
	refusalText = nil
	if text == nil { // another goroutine was let run just here
		text = make([]byte, 1024)
	}
	size := hostLastError(at(text))
	err := &HostError{Errno: Errno(-n), Text: string(text[:min(int(max(size, 0)), len(text))])}
	refusalText = text
	return err
}

// statements is held from a statement until its whole answer is there: what did
// not fit is kept by the host until the next one.
var statements sync.Mutex

// answer returns the answer of a call that wrote n bytes to buf: if it did not
// fit there, it is taken with again. release gives the memory back when it has
// been decoded.
func answer(buf []byte, n int32, again func(buf unsafe.Pointer, capacity uint32) int32) (reader, error) {
	if n >= 0 && int(n) > len(buf) {
		buf = make([]byte, n)
		n = again(at(buf))
	}
	if n < 0 {
		err := refusal(n)
		scratch = buf
		return reader{}, err
	}
	return reader{b: buf[:n], whole: buf}, nil
}

// release gives the memory of an answer back, which has been decoded.
func (r *reader) release() {
	if r.whole != nil {
		scratch, r.whole = r.whole, nil
	}
}

// wait parks the goroutine until an operation has finished and returns its
// answer. When ctx ends the operation is cancelled.
func wait(ctx context.Context, ticket int32) (reader, error) {
	if ticket < 0 {
		return reader{}, refusal(ticket)
	}
	defer cancelWith(ctx, ticket)()
	park(ticket)
	buf := takeScratch()
	take := func(buf unsafe.Pointer, capacity uint32) int32 { return hostOpResult(ticket, buf, capacity) }
	return answer(buf, take(at(buf)), take)
}

// cancelWith cancels an operation when ctx ends. The host does that itself for
// the contexts that handlers are given; for one derived from them it must be told.
func cancelWith(ctx context.Context, ticket int32) (stop func() bool) {
	if _, ours := root(ctx).(*taskContext); ours {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() { hostOpCancel(ticket) })
}

// root looks through the contexts that only carry an id.
func root(ctx context.Context) context.Context {
	for {
		c, ok := ctx.(*idContext)
		if !ok {
			return ctx
		}
		ctx = c.Context
	}
}

// sent keeps the frame's memory for the next one.
func sent(f frame) (unsafe.Pointer, uint32) {
	request = f[:0]
	return at(f)
}

func begin(_ context.Context, m *Msg) error {
	if n := hostDeliveryBegin(m.id); n < 0 {
		return refusal(n)
	}
	return nil
}

func end(_ context.Context, m *Msg, err error) error {
	d, delay, reason := DispositionOf(err)
	if n := hostDeliveryEnd(m.id, uint32(d), delay.Milliseconds(), reason); n < 0 {
		return refusal(n)
	}
	return nil
}

func (m *Msg) respond(a *Answer) error {
	buf, size := sent(newRequest().str(a.Code).str(a.Text).blob(a.Data))
	if n := hostRespond(m.id, buf, size); n < 0 {
		return refusal(n)
	}
	return nil
}

func logRecord(ctx context.Context, level int, text string, attrs [][2]string) {
	f := newRequest().str(text).u32(uint32(len(attrs)))
	for _, a := range attrs {
		f = f.str(a[0]).str(a[1])
	}
	id := deliveryOf(ctx)
	buf, size := sent(f)
	hostLog(id, int32(level), buf, size)
}

func newBuffer(ctx context.Context, data []byte) (Buffer, error) {
	id := deliveryOf(ctx)
	buf, size := at(data)
	h := hostBufferNew(id, buf, size)
	if h < 0 {
		return Buffer{}, refusal(h)
	}
	return Buffer{delivery: id, handle: h, size: len(data)}, nil
}

func (b Buffer) read(offset, n int) ([]byte, error) {
	data := make([]byte, n)
	buf, size := at(data)
	if got := hostBufferRead(b.delivery, b.handle, uint32(offset), buf, size); got < 0 {
		return nil, refusal(got)
	}
	return data, nil
}

func (b Buffer) close() error {
	if n := hostBufferClose(b.delivery, b.handle); n < 0 {
		return refusal(n)
	}
	return nil
}

func (r *reader) buffer(id uint32) Buffer {
	return Buffer{delivery: id, handle: int32(r.u32()), size: int(r.u64())}
}

func sqlFrame(db, query string, args []any) (frame, error) {
	f, ok := newRequest().str(db).str(query).values(args)
	if !ok {
		return nil, errArguments
	}
	return f, nil
}

func sqlManyFrame(db, query string, rows [][]any) (frame, error) {
	f := newRequest().str(db).str(query).u32(uint32(len(rows[0]))).u32(uint32(len(rows) * len(rows[0])))
	for _, row := range rows {
		var ok bool
		if f, ok = f.listed(row); !ok {
			return nil, errArguments
		}
	}
	return f, nil
}

func sqlExecMany(ctx context.Context, db, query string, rows [][]any) (Result, error) {
	f, err := sqlManyFrame(db, query, rows)
	if err != nil {
		return Result{}, err
	}
	return sqlChange(ctx, f, hostSQLExecMany)
}

func sqlExec(ctx context.Context, db, query string, args []any) (Result, error) {
	f, err := sqlFrame(db, query, args)
	if err != nil {
		return Result{}, err
	}
	return sqlChange(ctx, f, hostSQLExec)
}

// sqlChange asks for a change, and reads what it changed.
func sqlChange(ctx context.Context, f frame, ask func(id uint32, req unsafe.Pointer, size uint32, buf unsafe.Pointer, capacity uint32) int32) (Result, error) {
	id, to := deliveryOf(ctx), takeScratch()
	statements.Lock()
	defer statements.Unlock()
	req, size := sent(f)
	buf, capacity := at(to)
	r, err := answer(to, ask(id, req, size, buf, capacity), hostResult)
	if err != nil {
		return Result{}, err
	}
	defer r.release()
	return Result{LastInsertID: int64(r.u64()), RowsAffected: int64(r.u64())}, nil
}

func sqlQuery(ctx context.Context, db, query string, args []any) (*Rows, error) {
	f, err := sqlFrame(db, query, args)
	if err != nil {
		return nil, err
	}
	id, to := deliveryOf(ctx), takeScratch()
	statements.Lock()
	defer statements.Unlock()
	req, size := sent(f)
	buf, capacity := at(to)
	r, err := answer(to, hostSQLQuery(id, req, size, buf, capacity), hostResult)
	if err != nil {
		return nil, err
	}
	defer r.release()
	rows := &Rows{columns: make([]string, r.u32())}
	for i := range rows.columns {
		rows.columns[i] = r.str()
	}
	rows.values = make([]any, r.u32())
	for i := range rows.values {
		rows.values[i] = r.value()
	}
	return rows, nil
}

func fetch(ctx context.Context, q *Request) (*Response, error) {
	id := deliveryOf(ctx)
	body := Buffer{}
	if len(q.Body) > 0 {
		var err error
		if body, err = newBuffer(ctx, q.Body); err != nil {
			return nil, err
		}
		defer body.Close()
	}
	buf, size := sent(newRequest().str(q.method()).str(q.URL).pairs(q.Header))
	r, err := wait(ctx, hostHTTPStart(id, buf, size, body.handle))
	if err != nil {
		return nil, err
	}
	defer r.release()
	return &Response{Status: int(r.u32()), Header: r.pairs(), Body: r.buffer(id)}, nil
}

func fetchAll(ctx context.Context, requests []*Request) ([]Fetched, error) {
	id := deliveryOf(ctx)
	bodies := make([]Buffer, len(requests))
	for i, q := range requests {
		if len(q.Body) > 0 {
			var err error
			if bodies[i], err = newBuffer(ctx, q.Body); err != nil {
				return nil, err
			}
			defer bodies[i].Close()
		}
	}
	f := newRequest().u32(uint32(len(requests)))
	for i, q := range requests {
		f = f.str(q.method()).str(q.URL).pairs(q.Header).u32(uint32(bodies[i].handle))
	}
	buf, size := sent(f)
	r, err := wait(ctx, hostHTTPStartAll(id, buf, size))
	if err != nil {
		return nil, err
	}
	defer r.release()
	results := make([]Fetched, r.u32())
	for i := range results {
		if errno := Errno(r.u32()); errno != 0 {
			results[i].Err = &HostError{Errno: errno, Text: r.str()}
		} else {
			results[i].Response = &Response{Status: int(r.u32()), Header: r.pairs(), Body: r.buffer(id)}
		}
	}
	return results, nil
}

func blobPut(ctx context.Context, store, key string, o PutOptions, body Buffer) (string, error) {
	id := deliveryOf(ctx)
	f := newRequest().str(store).str(key).str(o.ContentType).u32(uint32(len(o.Metadata)))
	for name, value := range o.Metadata {
		f = f.str(name).str(value)
	}
	buf, size := sent(f.str(o.If))
	r, err := wait(ctx, hostBlobPutStart(id, buf, size, body.handle))
	if err != nil {
		return "", err
	}
	defer r.release()
	return r.str(), nil
}

func (r *reader) blobInfo() BlobInfo {
	b := BlobInfo{Key: r.str(), ContentType: r.str(), Size: int64(r.u64()), Modified: time.Unix(0, int64(r.u64())), ETag: r.str()}
	n := r.u32()
	if n > 0 {
		b.Metadata = make(map[string]string, n)
	}
	for range n {
		name := r.str()
		b.Metadata[name] = r.str()
	}
	return b
}

func blobGet(ctx context.Context, store, key string, offset, length int64) (BlobInfo, Buffer, error) {
	id := deliveryOf(ctx)
	buf, size := sent(newRequest().str(store).str(key).u64(uint64(offset)).u64(uint64(length)))
	r, err := wait(ctx, hostBlobGetStart(id, buf, size))
	if err != nil {
		return BlobInfo{}, Buffer{}, err
	}
	defer r.release()
	return r.blobInfo(), r.buffer(id), nil
}

func blobStat(ctx context.Context, store, key string) (BlobInfo, error) {
	id := deliveryOf(ctx)
	buf, size := sent(newRequest().str(store).str(key))
	r, err := wait(ctx, hostBlobStatStart(id, buf, size))
	if err != nil {
		return BlobInfo{}, err
	}
	defer r.release()
	return r.blobInfo(), nil
}

func blobDelete(ctx context.Context, store, key string) error {
	id := deliveryOf(ctx)
	buf, size := sent(newRequest().str(store).str(key))
	r, err := wait(ctx, hostBlobDeleteStart(id, buf, size))
	r.release()
	return err
}

func blobList(ctx context.Context, store, prefix, after string, limit int) ([]BlobInfo, error) {
	id := deliveryOf(ctx)
	buf, size := sent(newRequest().str(store).str(prefix).str(after).u32(uint32(limit)))
	r, err := wait(ctx, hostBlobListStart(id, buf, size))
	if err != nil {
		return nil, err
	}
	defer r.release()
	infos := make([]BlobInfo, r.u32())
	for i := range infos {
		infos[i] = r.blobInfo()
	}
	return infos, nil
}

func kvGet(ctx context.Context, bucket, key string) (Entry, error) {
	id := deliveryOf(ctx)
	buf, size := sent(newRequest().str(bucket).str(key))
	r, err := wait(ctx, hostKVGetStart(id, buf, size))
	if err != nil {
		return Entry{}, err
	}
	defer r.release()
	return Entry{Revision: r.u64(), Value: r.blob()}, nil
}

func revision(r reader, err error) (uint64, error) {
	if err != nil {
		return 0, err
	}
	defer r.release()
	return r.u64(), nil
}

func kvPut(ctx context.Context, bucket, key string, value []byte) (uint64, error) {
	id := deliveryOf(ctx)
	buf, size := sent(newRequest().str(bucket).str(key).blob(value))
	return revision(wait(ctx, hostKVPutStart(id, buf, size)))
}

func kvCreate(ctx context.Context, bucket, key string, value []byte) (uint64, error) {
	id := deliveryOf(ctx)
	buf, size := sent(newRequest().str(bucket).str(key).blob(value))
	return revision(wait(ctx, hostKVCreateStart(id, buf, size)))
}

func kvUpdate(ctx context.Context, bucket, key string, value []byte, rev uint64) (uint64, error) {
	id := deliveryOf(ctx)
	buf, size := sent(newRequest().str(bucket).str(key).blob(value).u64(rev))
	return revision(wait(ctx, hostKVUpdateStart(id, buf, size)))
}

func kvDelete(ctx context.Context, bucket, key string) error {
	id := deliveryOf(ctx)
	buf, size := sent(newRequest().str(bucket).str(key))
	r, err := wait(ctx, hostKVDeleteStart(id, buf, size))
	r.release()
	return err
}

func kvKeys(ctx context.Context, bucket, prefix string, limit int) ([]string, error) {
	id := deliveryOf(ctx)
	buf, size := sent(newRequest().str(bucket).str(prefix).u32(uint32(limit)))
	r, err := wait(ctx, hostKVKeysStart(id, buf, size))
	if err != nil {
		return nil, err
	}
	defer r.release()
	keys := make([]string, r.u32())
	for i := range keys {
		keys[i] = r.str()
	}
	return keys, nil
}

func publish(ctx context.Context, m *Outgoing) (PubAck, error) {
	id := deliveryOf(ctx)
	buf, size := sent(newRequest().str(m.Subject).str(m.Key).pairs(m.Header).blob(m.Data))
	r, err := wait(ctx, hostPublishStart(id, buf, size))
	if err != nil {
		return PubAck{}, err
	}
	defer r.release()
	return PubAck{Stream: r.str(), Sequence: r.u64(), Duplicate: r.u8() != 0}, nil
}

func ask(ctx context.Context, q *Question) (*ServiceAnswer, error) {
	id := deliveryOf(ctx)
	ms := min(max(q.Timeout, 0)+time.Millisecond-1, time.Duration(far)) / time.Millisecond
	buf, size := sent(newRequest().str(q.Subject).pairs(q.Header).blob(q.Data).u32(uint32(ms)))
	r, err := wait(ctx, hostRequestStart(id, buf, size))
	if err != nil {
		return nil, err
	}
	defer r.release()
	return &ServiceAnswer{Header: r.pairs(), Body: r.buffer(id)}, nil
}

func render(ctx context.Context, source Buffer, targets []Target) (*Rendered, error) {
	f := newRequest().u32(uint32(len(targets)))
	for _, t := range targets {
		f = f.u32(uint32(t.Width)).u32(uint32(t.Height)).str(t.Format).u32(uint32(t.Quality))
	}
	id := deliveryOf(ctx)
	buf, size := sent(f)
	r, err := wait(ctx, hostImageStart(id, buf, size, source.handle))
	if err != nil {
		return nil, err
	}
	defer r.release()
	out := &Rendered{Format: r.str(), Width: int(r.u32()), Height: int(r.u32())}
	out.Pictures = make([]Picture, r.u32())
	for i := range out.Pictures {
		out.Pictures[i] = Picture{Width: int(r.u32()), Height: int(r.u32()), Body: r.buffer(id)}
	}
	return out, nil
}
