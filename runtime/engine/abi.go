package engine

import (
	"context"
	"fmt"

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
	call            func(in *instance, c *host.Call, stack []uint64)
}

const i32, i64 = api.ValueTypeI32, api.ValueTypeI64

func types(t ...api.ValueType) []api.ValueType { return t }

// hostFunctions is the whole ABI, by name. It is not changed.
var hostFunctions = map[string]hostFunction{
	"delivery_read":  {types(i32, i32, i32, i32), types(i32), "", deliveryRead},
	"delivery_begin": {types(i32), types(i32), "", deliveryBegin},
	"delivery_end":   {types(i32, i32, i64, i32, i32), types(i32), "", deliveryEnd},
	"respond":        {types(i32, i32, i32), types(i32), "", respond},
	"log":            {types(i32, i32, i32, i32), nil, "", logRecord},
	"last_error":     {types(i32, i32), types(i32), "", lastError},
	"result":         {types(i32, i32), types(i32), "", result},
	"op_result":      {types(i32, i32, i32), types(i32), "", opResult},
	"op_wait":        {types(i32, i32, i32), types(i32), "", opWait},
	"op_cancel":      {types(i32), types(i32), "", opCancel},

	"buffer_new":   {types(i32, i32, i32), types(i32), "", bufferNew},
	"buffer_len":   {types(i32, i32), types(i32), "", bufferLen},
	"buffer_read":  {types(i32, i32, i32, i32, i32), types(i32), "", bufferRead},
	"buffer_close": {types(i32, i32), types(i32), "", bufferClose},

	"sql_exec":        {types(i32, i32, i32, i32, i32), types(i32), "sqlite", sqlExec},
	"sql_query":       {types(i32, i32, i32, i32, i32), types(i32), "sqlite", sqlQuery},
	"sql_query_start": {types(i32, i32, i32), types(i32), "sqlite", sqlQueryStart},
	"http_start":      {types(i32, i32, i32, i32), types(i32), "http", httpStart},

	"blob_put_start":    {types(i32, i32, i32, i32), types(i32), "blob", blobPutStart},
	"blob_get_start":    {types(i32, i32, i32), types(i32), "blob", blobGetStart},
	"blob_delete_start": {types(i32, i32, i32), types(i32), "blob", blobDeleteStart},
	"blob_list_start":   {types(i32, i32, i32), types(i32), "blob", blobListStart},

	"kv_get_start":    {types(i32, i32, i32), types(i32), "kv", kvGetStart},
	"kv_put_start":    {types(i32, i32, i32), types(i32), "kv", kvPutStart},
	"kv_create_start": {types(i32, i32, i32), types(i32), "kv", kvCreateStart},
	"kv_update_start": {types(i32, i32, i32), types(i32), "kv", kvUpdateStart},
	"kv_delete_start": {types(i32, i32, i32), types(i32), "kv", kvDeleteStart},
	"kv_keys_start":   {types(i32, i32, i32), types(i32), "kv", kvKeysStart},

	"publish_start": {types(i32, i32, i32), types(i32), "publish", publishStart},
	"image_start":   {types(i32, i32, i32, i32), types(i32), "image", imageStart},
}

// instantiateHost makes the module that guests import from.
func instantiateHost(ctx context.Context, r wazero.Runtime) error {
	b := r.NewHostModuleBuilder(hostModule)
	for name, f := range hostFunctions {
		fn := api.GoModuleFunc(func(ctx context.Context, _ api.Module, stack []uint64) {
			in := ctx.(*invocation).instance
			f.call(in, in.call, stack)
		})
		b.NewFunctionBuilder().WithGoModuleFunction(fn, f.params, f.results).Export(name)
	}
	fn := api.GoModuleFunc(func(ctx context.Context, _ api.Module, stack []uint64) {
		stack[0] = ctx.(*invocation).instance.refuel()
	})
	b.NewFunctionBuilder().WithGoModuleFunction(fn, nil, types(i64)).Export(wasm.RefuelName)
	_, err := b.Instantiate(ctx)
	return err
}

// memory returns the guest's bytes [ptr, ptr+size): a view, valid until the
// guest runs again. A range that does not lie in the guest's memory is a bug of
// the guest and traps; nothing is allocated before that is known.
func (in *instance) memory(ptr, size uint64) []byte {
	b, ok := in.module.Memory().Read(uint32(ptr), uint32(size))
	if !ok {
		panic(fmt.Errorf("pointer %d with length %d lies outside the guest's memory of %d bytes", uint32(ptr), uint32(size), in.module.Memory().Size()))
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
func refuse(c *host.Call, err error) uint64 { return api.EncodeI32(-int32(c.Fail(err))) }

// malformed is the refusal of a frame that does not decode.
func malformed(c *host.Call, name string) uint64 {
	return refuse(c, host.Errorf(host.Invalid, "%s: the request frame does not decode; see ABI.md", name))
}

// settled is the result of a call that answers nothing.
func settled(c *host.Call, err error) uint64 {
	if err != nil {
		return refuse(c, err)
	}
	return 0
}

// started is the result of a call that answers a ticket.
func started(c *host.Call, ticket int32, err error) uint64 {
	if err != nil {
		return refuse(c, err)
	}
	return api.EncodeI32(ticket)
}

func deliveryRead(in *instance, c *host.Call, stack []uint64) {
	first, count := uint32(stack[0]), uint32(stack[1])
	if count > uint32(len(c.Deliveries())) {
		stack[0] = refuse(c, host.Errorf(host.Invalid, "delivery_read: %d deliveries, the batch has %d", count, len(c.Deliveries())))
		return
	}
	f := frame(in.scratch[:0]).u32(count)
	for id := first; id < first+count; id++ {
		d := c.Delivery(id)
		if d == nil || d.Message == nil {
			stack[0] = refuse(c, host.Errorf(host.Invalid, "delivery_read: delivery %d is not in this batch", id))
			return
		}
		f = f.message(id, d.Message)
	}
	in.scratch = f
	stack[0] = in.give(f, stack[2], stack[3])
}

func deliveryBegin(_ *instance, c *host.Call, stack []uint64) {
	stack[0] = settled(c, c.Begin(uint32(stack[0])))
}

func deliveryEnd(in *instance, c *host.Call, stack []uint64) {
	reason := string(in.memory(stack[3], stack[4]))
	o := host.Outcome{Disposition: host.Disposition(min(uint32(stack[1]), 255)), Delay: millis(int64(stack[2])), Reason: reason}
	stack[0] = settled(c, c.End(uint32(stack[0]), o))
}

func respond(in *instance, c *host.Call, stack []uint64) {
	r := reader{b: in.memory(stack[1], stack[2])}
	answer := &host.Response{Code: r.str(), Text: r.str(), Data: r.blob()}
	if !r.ok() {
		stack[0] = malformed(c, "respond")
		return
	}
	stack[0] = settled(c, c.Respond(uint32(stack[0]), answer))
}

func logRecord(in *instance, c *host.Call, stack []uint64) {
	r := reader{b: in.memory(stack[2], stack[3])}
	text, attrs := r.str(), r.pairs()
	if !r.ok() {
		text, attrs = "(a log record that does not decode)", nil
	}
	c.Log(uint32(stack[0]), int(api.DecodeI32(stack[1])), text, attrs)
}

func lastError(in *instance, c *host.Call, stack []uint64) {
	text := []byte(c.LastError())
	to := in.memory(stack[0], stack[1])
	copy(to, text) // the beginning of a text is of use too
	stack[0] = uint64(uint32(len(text)))
}

func result(in *instance, c *host.Call, stack []uint64) {
	stack[0] = in.give(c.Kept(), stack[0], stack[1])
}

// collect gives a finished operation's answer; the ticket is forgotten once the
// guest has it.
func collect(in *instance, c *host.Call, n int32, t *host.Ticket, ptr, capacity uint64) uint64 {
	v, err := t.Value()
	if err != nil {
		c.Collect(n)
		return refuse(c, err)
	}
	in.scratch = frame(in.scratch[:0]).answer(v)
	if size := in.give(in.scratch, ptr, capacity); size > uint64(uint32(capacity)) {
		return size
	}
	c.Collect(n)
	return uint64(uint32(len(in.scratch)))
}

func opResult(in *instance, c *host.Call, stack []uint64) {
	n := api.DecodeI32(stack[0])
	t := c.Ticket(n)
	if t == nil {
		stack[0] = refuse(c, host.Errorf(host.Invalid, "op_result: ticket %d is not open", n))
		return
	}
	select {
	case <-t.Done():
		stack[0] = collect(in, c, n, t, stack[1], stack[2])
	default:
		stack[0] = refuse(c, host.Again)
	}
}

func opWait(in *instance, c *host.Call, stack []uint64) {
	n := api.DecodeI32(stack[0])
	t := c.Ticket(n)
	if t == nil {
		stack[0] = refuse(c, host.Errorf(host.Invalid, "op_wait: ticket %d is not open", n))
		return
	}
	<-t.Done() // it ends with the invocation's context at the latest
	stack[0] = collect(in, c, n, t, stack[1], stack[2])
}

func opCancel(_ *instance, c *host.Call, stack []uint64) {
	n := api.DecodeI32(stack[0])
	t := c.Ticket(n)
	if t == nil {
		stack[0] = refuse(c, host.Errorf(host.Invalid, "op_cancel: ticket %d is not open", n))
		return
	}
	t.Cancel()
	stack[0] = 0
}

func bufferNew(in *instance, c *host.Call, stack []uint64) {
	data := in.memory(stack[1], stack[2])
	h, err := c.AddBuffer(append(make([]byte, 0, len(data)), data...))
	stack[0] = started(c, h, err)
}

func bufferLen(_ *instance, c *host.Call, stack []uint64) {
	b, err := c.Buffer(api.DecodeI32(stack[1]))
	stack[0] = started(c, int32(len(b)), err)
}

func bufferRead(in *instance, c *host.Call, stack []uint64) {
	b, err := c.Buffer(api.DecodeI32(stack[1]))
	if err != nil {
		stack[0] = refuse(c, err)
		return
	}
	to := in.memory(stack[3], stack[4])
	from := min(uint64(uint32(stack[2])), uint64(len(b)))
	stack[0] = uint64(copy(to, b[from:]))
}

func bufferClose(_ *instance, c *host.Call, stack []uint64) {
	stack[0] = settled(c, c.CloseBuffer(api.DecodeI32(stack[1])))
}
