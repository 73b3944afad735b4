package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/runtime/wasm"
)

// hostModule is the name that guests import from.
const hostModule = "pelton"

// hostFunction is one function of the ABI. It reads its arguments from the
// stack and writes its result to stack[0].
type hostFunction struct {
	params, results []api.ValueType
	grant           string // the capability that importing it asks for
	by              by     // whose call it is
	call            func(in *instance, c *host.Call, stack []uint64)
}

// by says in whose name a function is called.
type by uint8

const (
	byID   by = iota // the first argument is a delivery's or batch's id
	byNone           // it names none; the call is nil
)

const i32, i64 = api.ValueTypeI32, api.ValueTypeI64

func types(t ...api.ValueType) []api.ValueType { return t }

// hostFunctions is the whole ABI, by name. It is not changed.
var hostFunctions = map[string]hostFunction{
	"delivery_read":  {types(i32, i32, i32, i32), types(i32), "", byNone, deliveryRead},
	"delivery_begin": {types(i32), types(i32), "", byID, deliveryBegin},
	"delivery_end":   {types(i32, i32, i64, i32, i32), types(i32), "", byID, deliveryEnd},
	"respond":        {types(i32, i32, i32), types(i32), "", byID, respond},
	"log":            {types(i32, i32, i32, i32), nil, "", byID, logRecord},
	"last_error":     {types(i32, i32), types(i32), "", byNone, lastError},
	"result":         {types(i32, i32), types(i32), "", byNone, result},
	"op_result":      {types(i32, i32, i32), types(i32), "", byNone, opResult},
	"op_wait":        {types(i32, i32, i32), types(i32), "", byNone, opWait},
	"await":          {types(i64), nil, "", byNone, func(in *instance, _ *host.Call, stack []uint64) { in.await(time.Duration(stack[0])) }},
	"ready":          {types(i32, i32), types(i32), "", byNone, ready},
	"op_cancel":      {types(i32), types(i32), "", byNone, opCancel},

	"buffer_new":   {types(i32, i32, i32), types(i32), "", byID, bufferNew},
	"buffer_len":   {types(i32, i32), types(i32), "", byID, bufferLen},
	"buffer_read":  {types(i32, i32, i32, i32, i32), types(i32), "", byID, bufferRead},
	"buffer_close": {types(i32, i32), types(i32), "", byID, bufferClose},

	"sql_exec":        {types(i32, i32, i32, i32, i32), types(i32), "sqlite", byID, sqlExec},
	"sql_exec_many":   {types(i32, i32, i32, i32, i32), types(i32), "sqlite", byID, sqlExecMany},
	"sql_query":       {types(i32, i32, i32, i32, i32), types(i32), "sqlite", byID, sqlQuery},
	"sql_query_start": {types(i32, i32, i32), types(i32), "sqlite", byID, sqlQueryStart},
	"http_start":      {types(i32, i32, i32, i32), types(i32), "http", byID, httpStart},
	"http_start_all":  {types(i32, i32, i32), types(i32), "http", byID, httpStartAll},

	"blob_put_start":    {types(i32, i32, i32, i32), types(i32), "blob", byID, blobPutStart},
	"blob_get_start":    {types(i32, i32, i32), types(i32), "blob", byID, blobGetStart},
	"blob_stat_start":   {types(i32, i32, i32), types(i32), "blob", byID, blobStatStart},
	"blob_delete_start": {types(i32, i32, i32), types(i32), "blob", byID, blobDeleteStart},
	"blob_list_start":   {types(i32, i32, i32), types(i32), "blob", byID, blobListStart},

	"kv_get_start":    {types(i32, i32, i32), types(i32), "kv", byID, kvGetStart},
	"kv_put_start":    {types(i32, i32, i32), types(i32), "kv", byID, kvPutStart},
	"kv_create_start": {types(i32, i32, i32), types(i32), "kv", byID, kvCreateStart},
	"kv_update_start": {types(i32, i32, i32), types(i32), "kv", byID, kvUpdateStart},
	"kv_delete_start": {types(i32, i32, i32), types(i32), "kv", byID, kvDeleteStart},
	"kv_keys_start":   {types(i32, i32, i32), types(i32), "kv", byID, kvKeysStart},

	"publish_start": {types(i32, i32, i32), types(i32), "publish", byID, publishStart},
	"request_start": {types(i32, i32, i32), types(i32), "request", byID, requestStart},
	"image_start":   {types(i32, i32, i32, i32), types(i32), "image", byID, imageStart},
}

// instantiateHost makes the module that guests import from.
func instantiateHost(ctx context.Context, r wazero.Runtime) error {
	b := r.NewHostModuleBuilder(hostModule)
	for name, f := range hostFunctions {
		fn := api.GoModuleFunc(func(ctx context.Context, m api.Module, stack []uint64) {
			in := instanceOf(ctx, m)
			in.calling = name
			f.call(in, in.caller(f.by, stack), stack)
		})
		b.NewFunctionBuilder().WithGoModuleFunction(fn, f.params, f.results).Export(name)
	}
	fn := api.GoModuleFunc(func(ctx context.Context, m api.Module, stack []uint64) {
		stack[0] = instanceOf(ctx, m).refuel()
	})
	b.NewFunctionBuilder().WithGoModuleFunction(fn, nil, types(i64)).Export(wasm.RefuelName)
	_, err := b.Instantiate(ctx)
	return err
}

// caller returns the call in whose name the guest speaks. One that is not in
// flight here is nobody's, and refused whatever it asks for.
func (in *instance) caller(by by, stack []uint64) *host.Call {
	if s := in.holder; s != nil {
		if err := s.call.CountCall(); err != nil {
			panic(fmt.Errorf("%w: %w", ErrBudget, err))
		}
	}
	if by == byNone {
		return nil
	}
	if s := in.find(uint32(stack[0])); s != nil {
		return s.call
	}
	return nobody()
}

// memory returns the guest's bytes [ptr, ptr+size): a view, valid until the
// guest runs again. A range that does not lie in the guest's memory is a bug of
// the guest and traps; nothing is allocated before that is known.
func (in *instance) memory(ptr, size uint64) []byte {
	in.worked(int(uint32(size)))
	b, ok := in.module.Memory().Read(uint32(ptr), uint32(size))
	if !ok {
		panic(fmt.Errorf("%s: pointer %d with length %d lies outside the guest's memory of %d bytes", in.calling, uint32(ptr), uint32(size), in.module.Memory().Size()))
	}
	return b
}

// give writes an answer to the guest's buffer if it fits, and returns the
// length that it has.
func (in *instance) give(b []byte, ptr, capacity uint64) uint64 {
	to := in.memory(ptr, capacity)
	if len(b) <= len(to) {
		copy(to, b)
	}
	return uint64(uint32(len(b)))
}

// refuse keeps the error's text and returns its negative number.
func (in *instance) refuse(err error) uint64 {
	in.lastError = err.Error()
	if len(in.lastError) > host.MaxReason {
		in.lastError = in.lastError[:host.MaxReason]
	}
	return api.EncodeI32(-int32(host.ErrnoOf(err)))
}

// malformed is the refusal of a frame that does not decode.
func (in *instance) malformed(name string) uint64 {
	return in.refuse(host.Errorf(host.Invalid, "%s: the request frame does not decode; see ABI.md", name))
}

// settled is the result of a call that answers nothing.
func (in *instance) plain(err error) uint64 {
	if err != nil {
		return in.refuse(err)
	}
	return 0
}

// started is the result of a call that answers a ticket.
func (in *instance) started(t *host.Ticket, err error) uint64 {
	if err != nil {
		return in.refuse(err)
	}
	return api.EncodeI32(in.number(t))
}

// handle is the result of a call that answers a small number.
func (in *instance) small(n int32, err error) uint64 {
	if err != nil {
		return in.refuse(err)
	}
	return api.EncodeI32(n)
}

func deliveryRead(in *instance, _ *host.Call, stack []uint64) {
	first, count := uint32(stack[0]), uint32(stack[1])
	f := frame(in.scratch[:0]).u32(count)
	for id := first; id-first < count; id++ {
		d := in.delivery(id)
		if d == nil || d.Message == nil {
			stack[0] = in.refuse(host.Errorf(host.Invalid, "delivery_read: delivery %d is not in flight here", id))
			return
		}
		f = f.message(id, d.Message)
	}
	in.scratch = f
	stack[0] = in.give(f, stack[2], stack[3])
}

// delivery returns a delivery that is in flight here, nil for any other.
func (in *instance) delivery(id uint32) *host.Delivery {
	if s := in.seats[id]; s != nil && in.shared {
		return s.call.Delivery(id)
	}
	if s := in.holder; s != nil {
		return s.call.Delivery(id)
	}
	return nil
}

func deliveryBegin(in *instance, c *host.Call, stack []uint64) {
	stack[0] = in.plain(c.Begin(uint32(stack[0])))
}

func deliveryEnd(in *instance, c *host.Call, stack []uint64) {
	reason := string(in.memory(stack[3], stack[4]))
	o := host.Outcome{Disposition: host.Disposition(min(uint32(stack[1]), 255)), Delay: millis(int64(stack[2])), Reason: reason}
	err := c.End(uint32(stack[0]), o)
	if s := in.find(uint32(stack[0])); err == nil && in.shared && s != nil {
		in.settled(s, nil)
	}
	stack[0] = in.plain(err)
}

func respond(in *instance, c *host.Call, stack []uint64) {
	r := reader{b: in.memory(stack[1], stack[2])}
	answer := &host.Response{Code: r.str(), Text: r.str(), Data: r.blob()}
	if !r.ok() {
		stack[0] = in.malformed("respond")
		return
	}
	stack[0] = in.plain(c.Respond(uint32(stack[0]), answer))
}

func logRecord(in *instance, c *host.Call, stack []uint64) {
	r := reader{b: in.memory(stack[2], stack[3])}
	text, attrs := r.str(), r.pairs()
	if !r.ok() {
		text, attrs = "(a log record that does not decode)", nil
	}
	c.Log(uint32(stack[0]), int(api.DecodeI32(stack[1])), text, attrs)
}

func lastError(in *instance, _ *host.Call, stack []uint64) {
	text := in.lastError
	to := in.memory(stack[0], stack[1])
	copy(to, text) // the beginning of a text is of use too
	stack[0] = uint64(uint32(len(text)))
}

func result(in *instance, _ *host.Call, stack []uint64) {
	stack[0] = in.give(in.kept, stack[0], stack[1])
}

// collect gives a finished operation's answer; the ticket is forgotten once the
// guest has it.
func (in *instance) collect(t *host.Ticket, ptr, capacity uint64) uint64 {
	v, err := t.Value()
	if err == nil {
		in.scratch = frame(in.scratch[:0]).answer(v)
		if size := in.give(in.scratch, ptr, capacity); size > uint64(uint32(capacity)) {
			return size
		}
	}
	delete(in.tickets, t.Number)
	t.Call.Collect(t)
	if err != nil {
		return in.refuse(err)
	}
	return uint64(uint32(len(in.scratch)))
}

// ticket finds an operation by its number, and gives its call the turn.
func (in *instance) ticket(name string, stack []uint64) *host.Ticket {
	n := api.DecodeI32(stack[0])
	t := in.tickets[n]
	if t == nil {
		stack[0] = in.refuse(host.Errorf(host.Invalid, "%s: ticket %d is not open", name, n))
		return nil
	}
	if in.shared {
		in.find(t.Owner)
	}
	return t
}

func opResult(in *instance, _ *host.Call, stack []uint64) {
	t := in.ticket("op_result", stack)
	if t == nil {
		return
	}
	select {
	case <-t.Done():
		stack[0] = in.collect(t, stack[1], stack[2])
	default:
		stack[0] = in.refuse(host.Again)
	}
}

func opWait(in *instance, _ *host.Call, stack []uint64) {
	t := in.ticket("op_wait", stack)
	if t == nil {
		return
	}
	in.pause(func() { in.waitFor(t) })
	stack[0] = in.collect(t, stack[1], stack[2])
}

// waitFor waits for an operation, which ends with its call at the latest.
func (in *instance) waitFor(t *host.Ticket) {
	for {
		look := time.NewTimer(time.Until(in.lookAt))
		select {
		case <-t.Done():
			look.Stop()
			return
		case <-look.C:
			in.mustEnd(in.look(time.Now()))
		}
	}
}

func opCancel(in *instance, _ *host.Call, stack []uint64) {
	if t := in.ticket("op_cancel", stack); t != nil {
		t.Cancel()
		stack[0] = 0
	}
}

func ready(in *instance, _ *host.Call, stack []uint64) {
	const most = 256
	var numbers [most]int32
	to := in.memory(stack[0], stack[1])
	n := in.tell(numbers[:min(most, len(to)/4)])
	for i, v := range numbers[:n] {
		binary.LittleEndian.PutUint32(to[4*i:], uint32(v))
	}
	stack[0] = uint64(uint32(n))
}

func bufferNew(in *instance, c *host.Call, stack []uint64) {
	data := in.memory(stack[1], stack[2])
	h, err := c.AddBuffer(append(make([]byte, 0, len(data)), data...))
	stack[0] = in.small(h, err)
}

func bufferLen(in *instance, c *host.Call, stack []uint64) {
	b, err := c.Buffer(api.DecodeI32(stack[1]))
	stack[0] = in.small(int32(len(b)), err)
}

func bufferRead(in *instance, c *host.Call, stack []uint64) {
	b, err := c.Buffer(api.DecodeI32(stack[1]))
	if err != nil {
		stack[0] = in.refuse(err)
		return
	}
	to := in.memory(stack[3], stack[4])
	from := min(uint64(uint32(stack[2])), uint64(len(b)))
	stack[0] = uint64(copy(to, b[from:]))
}

func bufferClose(in *instance, c *host.Call, stack []uint64) {
	stack[0] = in.plain(c.CloseBuffer(api.DecodeI32(stack[1])))
}
