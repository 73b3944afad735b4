package engine

import (
	"context"

	"github.com/pelton-run/pelton/host"
)

// kept answers a direct call; what does not fit is kept for result.
func kept(in *instance, f frame, ptr, capacity uint64) uint64 {
	in.scratch = f
	size := in.give(f, ptr, capacity)
	if size > uint64(uint32(capacity)) {
		in.kept = append([]byte{}, f...)
	}
	return size
}

// sqlRequest decodes a statement with its arguments.
func sqlRequest(in *instance, ptr, size uint64) (database, query string, args []any, ok bool) {
	r := reader{b: in.memory(ptr, size)}
	database, query, args = in.text(&r), in.text(&r), r.values(maxArguments)
	return database, query, args, r.ok()
}

func sqlExec(in *instance, c *host.Call, stack []uint64) {
	database, query, args, ok := sqlRequest(in, stack[1], stack[2])
	if !ok {
		stack[0] = in.malformed("sql_exec")
		return
	}
	res, err := c.Exec(uint32(stack[0]), database, query, args)
	if err != nil {
		stack[0] = in.refuse(err)
		return
	}
	stack[0] = kept(in, frame(in.scratch[:0]).changed(res), stack[3], stack[4])
}

func sqlExecMany(in *instance, c *host.Call, stack []uint64) {
	r := reader{b: in.memory(stack[1], stack[2])}
	database, query, width, args := in.text(&r), in.text(&r), r.u32(), r.values(maxManyArguments)
	if !r.ok() {
		stack[0] = in.malformed("sql_exec_many")
		return
	}
	res, err := c.ExecMany(uint32(stack[0]), database, query, int(min(width, maxManyArguments)), args)
	if err != nil {
		stack[0] = in.refuse(err)
		return
	}
	stack[0] = kept(in, frame(in.scratch[:0]).changed(res), stack[3], stack[4])
}

func sqlQuery(in *instance, c *host.Call, stack []uint64) {
	database, query, args, ok := sqlRequest(in, stack[1], stack[2])
	if !ok {
		stack[0] = in.malformed("sql_query")
		return
	}
	rows, err := c.Query(uint32(stack[0]), database, query, args)
	if err != nil {
		stack[0] = in.refuse(err)
		return
	}
	stack[0] = kept(in, frame(in.scratch[:0]).rows(rows), stack[3], stack[4])
}

func sqlQueryStart(in *instance, c *host.Call, stack []uint64) {
	database, query, args, ok := sqlRequest(in, stack[1], stack[2])
	if !ok {
		stack[0] = in.malformed("sql_query_start")
		return
	}
	t, err := c.QueryStart(uint32(stack[0]), database, query, args)
	stack[0] = in.started(t, err)
}

func httpStart(in *instance, c *host.Call, stack []uint64) {
	r := reader{b: in.memory(stack[1], stack[2])}
	q := &host.Request{Method: r.str(), URL: r.str(), Headers: r.pairs()}
	if !r.ok() {
		stack[0] = in.malformed("http_start")
		return
	}
	t, err := c.HTTPStart(uint32(stack[0]), q, int32(stack[3]))
	stack[0] = in.started(t, err)
}

func httpStartAll(in *instance, c *host.Call, stack []uint64) {
	r := reader{b: in.memory(stack[1], stack[2])}
	n := r.count(16, maxRequests)
	all, bodies := make([]*host.Request, n), make([]int32, n)
	for i := range all {
		all[i] = &host.Request{Method: r.str(), URL: r.str(), Headers: r.pairs()}
		bodies[i] = int32(r.u32())
	}
	if !r.ok() {
		stack[0] = in.malformed("http_start_all")
		return
	}
	t, err := c.HTTPStartAll(uint32(stack[0]), all, bodies)
	stack[0] = in.started(t, err)
}

func blobPutStart(in *instance, c *host.Call, stack []uint64) {
	r := reader{b: in.memory(stack[1], stack[2])}
	store := r.str()
	p := &host.BlobPut{Key: r.str(), ContentType: r.str(), Metadata: r.pairs(), If: r.str()}
	if !r.ok() {
		stack[0] = in.malformed("blob_put_start")
		return
	}
	t, err := c.BlobPutStart(uint32(stack[0]), store, p, int32(stack[3]))
	stack[0] = in.started(t, err)
}

func blobGetStart(in *instance, c *host.Call, stack []uint64) {
	r := reader{b: in.memory(stack[1], stack[2])}
	store, key, part := r.str(), r.str(), host.Range{Offset: int64(r.u64()), Length: int64(r.u64())}
	if !r.ok() {
		stack[0] = in.malformed("blob_get_start")
		return
	}
	t, err := c.BlobGetStart(uint32(stack[0]), store, key, part)
	stack[0] = in.started(t, err)
}

func blobStatStart(in *instance, c *host.Call, stack []uint64) {
	r := reader{b: in.memory(stack[1], stack[2])}
	store, key := r.str(), r.str()
	if !r.ok() {
		stack[0] = in.malformed("blob_stat_start")
		return
	}
	t, err := c.BlobStatStart(uint32(stack[0]), store, key)
	stack[0] = in.started(t, err)
}

func blobDeleteStart(in *instance, c *host.Call, stack []uint64) {
	r := reader{b: in.memory(stack[1], stack[2])}
	store, key := r.str(), r.str()
	if !r.ok() {
		stack[0] = in.malformed("blob_delete_start")
		return
	}
	t, err := c.BlobDeleteStart(uint32(stack[0]), store, key)
	stack[0] = in.started(t, err)
}

func blobListStart(in *instance, c *host.Call, stack []uint64) {
	r := reader{b: in.memory(stack[1], stack[2])}
	store, prefix, after, limit := r.str(), r.str(), r.str(), r.u32()
	if !r.ok() {
		stack[0] = in.malformed("blob_list_start")
		return
	}
	t, err := c.BlobListStart(uint32(stack[0]), store, prefix, after, int(limit))
	stack[0] = in.started(t, err)
}

// kvStart decodes a bucket and what op reads of the frame, and starts what op
// returns.
func kvStart(in *instance, c *host.Call, stack []uint64, name string, op func(r *reader) func(context.Context, host.KV) (any, error)) {
	r := reader{b: in.memory(stack[1], stack[2])}
	bucket := r.str()
	run := op(&r)
	if !r.ok() {
		stack[0] = in.malformed(name)
		return
	}
	t, err := c.KVStart(uint32(stack[0]), bucket, run)
	stack[0] = in.started(t, err)
}

func kvGetStart(in *instance, c *host.Call, stack []uint64) {
	kvStart(in, c, stack, "kv_get_start", func(r *reader) func(context.Context, host.KV) (any, error) {
		key := r.str()
		return func(ctx context.Context, kv host.KV) (any, error) { return kv.Get(ctx, key) }
	})
}

func kvPutStart(in *instance, c *host.Call, stack []uint64) {
	kvStart(in, c, stack, "kv_put_start", func(r *reader) func(context.Context, host.KV) (any, error) {
		key, value := r.str(), r.blob()
		return func(ctx context.Context, kv host.KV) (any, error) { return kv.Put(ctx, key, value) }
	})
}

func kvCreateStart(in *instance, c *host.Call, stack []uint64) {
	kvStart(in, c, stack, "kv_create_start", func(r *reader) func(context.Context, host.KV) (any, error) {
		key, value := r.str(), r.blob()
		return func(ctx context.Context, kv host.KV) (any, error) { return kv.Create(ctx, key, value) }
	})
}

func kvUpdateStart(in *instance, c *host.Call, stack []uint64) {
	kvStart(in, c, stack, "kv_update_start", func(r *reader) func(context.Context, host.KV) (any, error) {
		key, value, revision := r.str(), r.blob(), r.u64()
		return func(ctx context.Context, kv host.KV) (any, error) { return kv.Update(ctx, key, value, revision) }
	})
}

func kvDeleteStart(in *instance, c *host.Call, stack []uint64) {
	kvStart(in, c, stack, "kv_delete_start", func(r *reader) func(context.Context, host.KV) (any, error) {
		key := r.str()
		return func(ctx context.Context, kv host.KV) (any, error) { return nil, kv.Delete(ctx, key) }
	})
}

// maxKeys bounds the keys of one kv_keys_start.
const maxKeys = 10_000

func kvKeysStart(in *instance, c *host.Call, stack []uint64) {
	kvStart(in, c, stack, "kv_keys_start", func(r *reader) func(context.Context, host.KV) (any, error) {
		prefix, limit := r.str(), int(min(r.u32(), maxKeys))
		return func(ctx context.Context, kv host.KV) (any, error) { return kv.Keys(ctx, prefix, limit) }
	})
}

func requestStart(in *instance, c *host.Call, stack []uint64) {
	r := reader{b: in.memory(stack[1], stack[2])}
	q := &host.Question{Subject: r.str(), Headers: r.headers(), Data: r.blob(), Timeout: millis(int64(r.u32()))}
	if !r.ok() {
		stack[0] = in.malformed("request_start")
		return
	}
	t, err := c.AskStart(uint32(stack[0]), q)
	stack[0] = in.started(t, err)
}

func publishStart(in *instance, c *host.Call, stack []uint64) {
	r := reader{b: in.memory(stack[1], stack[2])}
	m, key := &host.Outgoing{Subject: r.str()}, r.str()
	m.Headers, m.Data = r.headers(), r.blob()
	if !r.ok() {
		stack[0] = in.malformed("publish_start")
		return
	}
	t, err := c.PublishStart(uint32(stack[0]), m, key)
	stack[0] = in.started(t, err)
}

func imageStart(in *instance, c *host.Call, stack []uint64) {
	r := reader{b: in.memory(stack[1], stack[2])}
	targets := r.targets()
	if !r.ok() {
		stack[0] = in.malformed("image_start")
		return
	}
	t, err := c.ImageStart(uint32(stack[0]), int32(stack[3]), targets)
	stack[0] = in.started(t, err)
}
