//go:build wasip1

package sdk

import (
	"context"
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

//go:wasmimport pelton op_wait
func hostOpWait(ticket int32, buf unsafe.Pointer, capacity uint32) int32

//go:wasmimport pelton buffer_new
func hostBufferNew(id uint32, data unsafe.Pointer, size uint32) int32

//go:wasmimport pelton buffer_read
func hostBufferRead(id uint32, handle int32, offset uint32, buf unsafe.Pointer, capacity uint32) int32

//go:wasmimport pelton buffer_close
func hostBufferClose(id uint32, handle int32) int32

//go:wasmimport pelton sql_exec
func hostSQLExec(id uint32, req unsafe.Pointer, size uint32, buf unsafe.Pointer, capacity uint32) int32

//go:wasmimport pelton sql_query
func hostSQLQuery(id uint32, req unsafe.Pointer, size uint32, buf unsafe.Pointer, capacity uint32) int32

//go:wasmimport pelton http_start
func hostHTTPStart(id uint32, req unsafe.Pointer, size uint32, body int32) int32

//go:wasmimport pelton blob_put_start
func hostBlobPutStart(id uint32, req unsafe.Pointer, size uint32, body int32) int32

//go:wasmimport pelton blob_get_start
func hostBlobGetStart(id uint32, req unsafe.Pointer, size uint32) int32

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

//go:wasmimport pelton image_start
func hostImageStart(id uint32, req unsafe.Pointer, size uint32, source int32) int32

// scratch takes the host's answers; they are decoded, which copies, before the
// next call. request is where frames are built. A guest has one thread, and a
// goroutine is not exchanged for another between a call and its decoding.
var (
	scratch = make([]byte, 16<<10)
	request = make(frame, 0, 16<<10)
)

func at(b []byte) (unsafe.Pointer, uint32) {
	return unsafe.Pointer(unsafe.SliceData(b)), uint32(len(b))
}

// refusal makes an error of a negative result.
func refusal(n int32) error {
	var text [1024]byte
	size := hostLastError(unsafe.Pointer(&text), uint32(len(text)))
	return &HostError{Errno: Errno(-n), Text: string(text[:min(int(max(size, 0)), len(text))])}
}

// answer returns the n bytes of an answer: in scratch if they fit there,
// otherwise taken with again.
func answer(n int32, again func(buf unsafe.Pointer, capacity uint32) int32) (reader, error) {
	if n < 0 {
		return reader{}, refusal(n)
	}
	if int(n) > len(scratch) {
		scratch = make([]byte, n)
		if m := again(at(scratch)); m < 0 {
			return reader{}, refusal(m)
		}
	}
	return reader{b: scratch[:n]}, nil
}

// wait blocks until an operation has finished and returns its answer.
func wait(ticket int32) (reader, error) {
	if ticket < 0 {
		return reader{}, refusal(ticket)
	}
	take := func(buf unsafe.Pointer, capacity uint32) int32 { return hostOpWait(ticket, buf, capacity) }
	return answer(take(at(scratch)), take)
}

// sent keeps the frame's memory for the next one.
func sent(f frame) (unsafe.Pointer, uint32) {
	request = f[:0]
	return at(f)
}

//go:wasmexport pelton_abi_1
func abiVersion() {}

//go:wasmexport pelton_handle
func peltonHandle(batch, first, count uint32) int64 {
	ctx := contextOf(context.Background(), batch)
	settled := 0
	msgs, err := readDeliveries(first, count)
	if err == nil {
		err = guardedBatch(ctx, Batch{msgs: msgs, settled: &settled})
	}
	if err == nil && settled == len(msgs) {
		return 0 // there is nothing left to say about the batch
	}
	d, delay, reason := DispositionOf(err)
	hostDeliveryEnd(batch, uint32(d), delay.Milliseconds(), reason)
	return 0
}

func guardedBatch(ctx context.Context, b Batch) error {
	if handler == nil {
		return &HostError{Errno: ErrInvalid, Text: "the function registered no handler: call sdk.Handle in init"}
	}
	return guarded(ctx, nil, func(ctx context.Context, _ *Msg) error { return handler(ctx, b) })
}

func readDeliveries(first, count uint32) ([]*Msg, error) {
	read := func(buf unsafe.Pointer, capacity uint32) int32 { return hostDeliveryRead(first, count, buf, capacity) }
	r, err := answer(read(at(scratch)), read)
	if err != nil {
		return nil, err
	}
	// One copy for the whole batch: texts and bodies are views of it.
	r = reader{b: append([]byte{}, r.b...), view: true}
	store := make([]Msg, r.u32())
	msgs := make([]*Msg, len(store))
	for i := range msgs {
		m := &store[i]
		m.id, m.trigger, m.subject, m.reply, m.headers, m.data = r.u32(), r.str(), r.str(), r.str(), r.pairs(), r.blob()
		m.metadata.Stream, m.metadata.Consumer = r.str(), r.str()
		m.metadata.Sequence.Stream, m.metadata.Sequence.Consumer = r.u64(), r.u64()
		m.metadata.NumDelivered, m.metadata.NumPending = r.u64(), r.u64()
		m.metadata.Timestamp = time.Unix(0, int64(r.u64()))
		msgs[i] = m
	}
	return msgs, nil
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
	buf, size := sent(request.str(a.Code).str(a.Text).blob(a.Data))
	if n := hostRespond(m.id, buf, size); n < 0 {
		return refusal(n)
	}
	return nil
}

func logRecord(ctx context.Context, level int, text string, attrs [][2]string) {
	f := request.str(text).u32(uint32(len(attrs)))
	for _, a := range attrs {
		f = f.str(a[0]).str(a[1])
	}
	buf, size := sent(f)
	hostLog(deliveryOf(ctx), int32(level), buf, size)
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
	f, ok := request.str(db).str(query).values(args)
	if !ok {
		return nil, errArguments
	}
	return f, nil
}

func sqlExec(ctx context.Context, db, query string, args []any) (Result, error) {
	f, err := sqlFrame(db, query, args)
	if err != nil {
		return Result{}, err
	}
	req, size := sent(f)
	buf, capacity := at(scratch)
	r, err := answer(hostSQLExec(deliveryOf(ctx), req, size, buf, capacity), hostResult)
	if err != nil {
		return Result{}, err
	}
	return Result{LastInsertID: int64(r.u64()), RowsAffected: int64(r.u64())}, nil
}

func sqlQuery(ctx context.Context, db, query string, args []any) (*Rows, error) {
	f, err := sqlFrame(db, query, args)
	if err != nil {
		return nil, err
	}
	req, size := sent(f)
	buf, capacity := at(scratch)
	r, err := answer(hostSQLQuery(deliveryOf(ctx), req, size, buf, capacity), hostResult)
	if err != nil {
		return nil, err
	}
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
	buf, size := sent(request.str(q.Method).str(q.URL).pairs(q.Header))
	r, err := wait(hostHTTPStart(id, buf, size, body.handle))
	if err != nil {
		return nil, err
	}
	return &Response{Status: int(r.u32()), Header: r.pairs(), Body: r.buffer(id)}, nil
}

func blobPut(ctx context.Context, store, key, contentType string, body Buffer) error {
	buf, size := sent(request.str(store).str(key).str(contentType))
	_, err := wait(hostBlobPutStart(deliveryOf(ctx), buf, size, body.handle))
	return err
}

func (r *reader) blobInfo() BlobInfo {
	return BlobInfo{Key: r.str(), ContentType: r.str(), Size: int64(r.u64()), Modified: time.Unix(0, int64(r.u64()))}
}

func blobGet(ctx context.Context, store, key string) (BlobInfo, Buffer, error) {
	id := deliveryOf(ctx)
	buf, size := sent(request.str(store).str(key))
	r, err := wait(hostBlobGetStart(id, buf, size))
	if err != nil {
		return BlobInfo{}, Buffer{}, err
	}
	return r.blobInfo(), r.buffer(id), nil
}

func blobDelete(ctx context.Context, store, key string) error {
	buf, size := sent(request.str(store).str(key))
	_, err := wait(hostBlobDeleteStart(deliveryOf(ctx), buf, size))
	return err
}

func blobList(ctx context.Context, store, prefix, after string, limit int) ([]BlobInfo, error) {
	buf, size := sent(request.str(store).str(prefix).str(after).u32(uint32(limit)))
	r, err := wait(hostBlobListStart(deliveryOf(ctx), buf, size))
	if err != nil {
		return nil, err
	}
	infos := make([]BlobInfo, r.u32())
	for i := range infos {
		infos[i] = r.blobInfo()
	}
	return infos, nil
}

func kvGet(ctx context.Context, bucket, key string) (Entry, error) {
	buf, size := sent(request.str(bucket).str(key))
	r, err := wait(hostKVGetStart(deliveryOf(ctx), buf, size))
	if err != nil {
		return Entry{}, err
	}
	return Entry{Revision: r.u64(), Value: r.blob()}, nil
}

func revision(r reader, err error) (uint64, error) {
	if err != nil {
		return 0, err
	}
	return r.u64(), nil
}

func kvPut(ctx context.Context, bucket, key string, value []byte) (uint64, error) {
	buf, size := sent(request.str(bucket).str(key).blob(value))
	return revision(wait(hostKVPutStart(deliveryOf(ctx), buf, size)))
}

func kvCreate(ctx context.Context, bucket, key string, value []byte) (uint64, error) {
	buf, size := sent(request.str(bucket).str(key).blob(value))
	return revision(wait(hostKVCreateStart(deliveryOf(ctx), buf, size)))
}

func kvUpdate(ctx context.Context, bucket, key string, value []byte, rev uint64) (uint64, error) {
	buf, size := sent(request.str(bucket).str(key).blob(value).u64(rev))
	return revision(wait(hostKVUpdateStart(deliveryOf(ctx), buf, size)))
}

func kvDelete(ctx context.Context, bucket, key string) error {
	buf, size := sent(request.str(bucket).str(key))
	_, err := wait(hostKVDeleteStart(deliveryOf(ctx), buf, size))
	return err
}

func kvKeys(ctx context.Context, bucket, prefix string, limit int) ([]string, error) {
	buf, size := sent(request.str(bucket).str(prefix).u32(uint32(limit)))
	r, err := wait(hostKVKeysStart(deliveryOf(ctx), buf, size))
	if err != nil {
		return nil, err
	}
	keys := make([]string, r.u32())
	for i := range keys {
		keys[i] = r.str()
	}
	return keys, nil
}

func publish(ctx context.Context, m *Outgoing) (PubAck, error) {
	buf, size := sent(request.str(m.Subject).str(m.Key).pairs(m.Header).blob(m.Data))
	r, err := wait(hostPublishStart(deliveryOf(ctx), buf, size))
	if err != nil {
		return PubAck{}, err
	}
	return PubAck{Stream: r.str(), Sequence: r.u64(), Duplicate: r.u8() != 0}, nil
}

func render(ctx context.Context, source Buffer, targets []Target) (*Rendered, error) {
	f := request.u32(uint32(len(targets)))
	for _, t := range targets {
		f = f.u32(uint32(t.Width)).u32(uint32(t.Height)).str(t.Format).u32(uint32(t.Quality))
	}
	id := deliveryOf(ctx)
	buf, size := sent(f)
	r, err := wait(hostImageStart(id, buf, size, source.handle))
	if err != nil {
		return nil, err
	}
	out := &Rendered{Format: r.str(), Width: int(r.u32()), Height: int(r.u32())}
	out.Pictures = make([]Picture, r.u32())
	for i := range out.Pictures {
		out.Pictures[i] = Picture{Width: int(r.u32()), Height: int(r.u32()), Body: r.buffer(id)}
	}
	return out, nil
}
