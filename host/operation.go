package host

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// Buffered is bytes that became a buffer of the invocation.
type Buffered struct {
	Handle int32
	Size   int64
}

// HTTPAnswer is a response whose body lies in a buffer.
type HTTPAnswer struct {
	Response *HTTPResponse
	Body     Buffered
}

// HTTPResult is what became of one of several requests.
type HTTPResult struct {
	Answer *HTTPAnswer
	Err    error
}

// BlobAnswer is a blob whose content lies in a buffer.
type BlobAnswer struct {
	Info BlobInfo
	Body Buffered
}

// ServiceReply is a service's answer whose content lies in a buffer.
type ServiceReply struct {
	Answer *ServiceAnswer
	Body   Buffered
}

// ImageAnswer is what became of a picture, each result in a buffer.
type ImageAnswer struct {
	Rendered *Rendered
	Pictures []Buffered
}

// named refuses a call that does not name a delivery of this invocation.
func (c *Call) named(id uint32) (*Delivery, error) {
	d := c.Delivery(id)
	if d == nil {
		return nil, Errorf(Invalid, "delivery %d is not in this batch", id)
	}
	if c.grants.Fence != nil {
		if err := c.grants.Fence(); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Exec runs a statement in the invocation's transaction.
func (c *Call) Exec(id uint32, database, query string, args []any) (Result, error) {
	if err := c.writes(id, database); err != nil {
		return Result{}, err
	}
	if err := c.countStatements(1); err != nil {
		return Result{}, err
	}
	r, err := c.tx.Exec(c.Context(), query, args)
	c.afterSQL(err)
	return r, err
}

// ExecMany runs a statement in the invocation's transaction once for each row of
// width arguments. It counts as that many statements; when one of them is refused,
// none has happened.
func (c *Call) ExecMany(id uint32, database, query string, width int, args []any) (Result, error) {
	if width <= 0 || len(args) == 0 || len(args)%width != 0 {
		return Result{}, Errorf(Invalid, "%d arguments are not rows of %d", len(args), width)
	}
	if err := c.writes(id, database); err != nil {
		return Result{}, err
	}
	if err := c.countStatements(len(args) / width); err != nil {
		return Result{}, err
	}
	r, err := c.tx.ExecMany(c.Context(), query, width, args)
	c.afterSQL(err)
	return r, err
}

func (c *Call) writes(id uint32, database string) error {
	if _, err := c.named(id); err != nil {
		return err
	}
	if c.grants.Databases[database] == nil {
		return Errorf(Denied, "database %q is not granted", database)
	}
	if database != c.grants.Write || c.tx == nil {
		return Errorf(Denied, "database %q is granted for reading only", database)
	}
	return nil
}

// countStatements refuses statements above the limit.
func (c *Call) countStatements(n int) error {
	if c.statements += n; c.limits.SQLCalls > 0 && c.statements > c.limits.SQLCalls {
		return Errorf(Limit, "limits.sql_calls of %d is reached", c.limits.SQLCalls)
	}
	return nil
}

// Query reads rows: in the transaction from the database that it is on, with a
// connection for reading from any other.
func (c *Call) Query(id uint32, database, query string, args []any) (*Rows, error) {
	if _, err := c.named(id); err != nil {
		return nil, err
	}
	db := c.grants.Databases[database]
	if db == nil {
		return nil, Errorf(Denied, "database %q is not granted", database)
	}
	if err := c.countStatements(1); err != nil {
		return nil, err
	}
	if database == c.grants.Write && c.tx != nil {
		rows, err := c.tx.Query(c.Context(), query, args, c.limits.Rows)
		c.afterSQL(err)
		return rows, err
	}
	return db.Query(c.Context(), query, args, c.limits.Rows)
}

// QueryStart is Query beside the guest, for databases granted for reading.
func (c *Call) QueryStart(id uint32, database, query string, args []any) (*Ticket, error) {
	if database == c.grants.Write && c.tx != nil {
		rows, err := c.Query(id, database, query, args)
		if err != nil {
			return nil, err
		}
		return c.answered(rows)
	}
	if _, err := c.named(id); err != nil {
		return nil, err
	}
	db := c.grants.Databases[database]
	if db == nil {
		return nil, Errorf(Denied, "database %q is not granted", database)
	}
	if err := c.countStatements(1); err != nil {
		return nil, err
	}
	return c.start(func(ctx context.Context) (any, error) { return db.Query(ctx, query, args, c.limits.Rows) })
}

// HTTPStart sends a request whose body is a buffer.
func (c *Call) HTTPStart(id uint32, r *Request, body int32) (*Ticket, error) {
	if err := c.admit(id, r, body); err != nil {
		return nil, err
	}
	return c.start(func(ctx context.Context) (any, error) { return c.request(ctx, r) })
}

// MaxRequests is how many of several requests are sent at one time.
const MaxRequests = 32

// HTTPStartAll sends requests beside each other, whose bodies are buffers, and
// answers with what became of each: a []HTTPResult. It is refused as a whole when one
// of them could not be started.
func (c *Call) HTTPStartAll(id uint32, all []*Request, bodies []int32) (*Ticket, error) {
	for i, r := range all {
		if err := c.admit(id, r, bodies[i]); err != nil {
			return nil, err
		}
	}
	return c.start(func(ctx context.Context) (any, error) {
		results := make([]HTTPResult, len(all))
		var group errgroup.Group
		group.SetLimit(MaxRequests)
		for i, r := range all {
			group.Go(func() error {
				results[i] = c.result(ctx, r)
				return nil
			})
		}
		return results, group.Wait()
	})
}

// admit counts a request and gives it its body.
func (c *Call) admit(id uint32, r *Request, body int32) error {
	d, err := c.named(id)
	if err != nil {
		return err
	}
	if c.grants.HTTP == nil {
		return Errorf(Denied, "http is not granted")
	}
	if c.requests++; c.requests > c.limits.HTTPRequests {
		return Errorf(Limit, "limits.http_requests of %d is reached", c.limits.HTTPRequests)
	}
	if r.Body, err = c.Buffer(body); err != nil {
		return err
	}
	if c.grants.HTTP.Keyed() {
		r.Key = c.requestKey(d, r)
	}
	return nil
}

// result sends one of several requests; one that breaks off is one that failed.
func (c *Call) result(ctx context.Context, r *Request) (result HTTPResult) {
	defer func() {
		if p := recover(); p != nil {
			result = HTTPResult{Err: Errorf(Failed, "the operation broke off: %v", p)}
		}
	}()
	answer, err := c.request(ctx, r)
	return HTTPResult{answer, err}
}

func (c *Call) request(ctx context.Context, r *Request) (*HTTPAnswer, error) {
	resp, err := c.grants.HTTP.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	kept, err := c.keep(resp.Body)
	if err != nil {
		return nil, err
	}
	return &HTTPAnswer{Response: resp, Body: kept}, nil
}

// keep puts an operation's bytes into a buffer.
func (c *Call) keep(b []byte) (Buffered, error) {
	h, err := c.AddBuffer(b)
	return Buffered{Handle: h, Size: int64(len(b))}, err
}

func (c *Call) blobs(id uint32, store string) (Blobs, error) {
	if _, err := c.named(id); err != nil {
		return nil, err
	}
	b := c.grants.Blobs[store]
	if b == nil {
		return nil, Errorf(Denied, "blob store %q is not granted", store)
	}
	return b, nil
}

// BlobPutStart stores a buffer; the ticket's value is the blob's ETag.
func (c *Call) BlobPutStart(id uint32, store string, p *BlobPut, body int32) (*Ticket, error) {
	blobs, err := c.blobs(id, store)
	if err != nil {
		return nil, err
	}
	b, err := c.Buffer(body)
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > c.limits.Blob {
		return nil, Errorf(TooLarge, "blob %q has %d bytes, limits.blob is %d", p.Key, len(b), c.limits.Blob)
	}
	p.Data = b
	return c.start(func(ctx context.Context) (any, error) { return blobs.Put(ctx, p) })
}

// BlobStatStart looks at a blob.
func (c *Call) BlobStatStart(id uint32, store, key string) (*Ticket, error) {
	blobs, err := c.blobs(id, store)
	if err != nil {
		return nil, err
	}
	return c.start(func(ctx context.Context) (any, error) { return blobs.Stat(ctx, key) })
}

// BlobGetStart reads a blob, or a part of it, into a buffer.
func (c *Call) BlobGetStart(id uint32, store, key string, part Range) (*Ticket, error) {
	blobs, err := c.blobs(id, store)
	if err != nil {
		return nil, err
	}
	return c.start(func(ctx context.Context) (any, error) {
		blob, err := blobs.Get(ctx, key, part, c.limits.Blob)
		if err != nil {
			return nil, err
		}
		kept, err := c.keep(blob.Data)
		return &BlobAnswer{Info: blob.BlobInfo, Body: kept}, err
	})
}

// BlobDeleteStart removes a blob.
func (c *Call) BlobDeleteStart(id uint32, store, key string) (*Ticket, error) {
	blobs, err := c.blobs(id, store)
	if err != nil {
		return nil, err
	}
	return c.start(func(ctx context.Context) (any, error) { return nil, blobs.Delete(ctx, key) })
}

// BlobListStart lists blobs by prefix.
func (c *Call) BlobListStart(id uint32, store, prefix, after string, limit int) (*Ticket, error) {
	blobs, err := c.blobs(id, store)
	if err != nil {
		return nil, err
	}
	return c.start(func(ctx context.Context) (any, error) { return blobs.List(ctx, prefix, after, limit) })
}

// KVStart runs an operation on a bucket.
func (c *Call) KVStart(id uint32, bucket string, op func(ctx context.Context, kv KV) (any, error)) (*Ticket, error) {
	if _, err := c.named(id); err != nil {
		return nil, err
	}
	kv := c.grants.KV[bucket]
	if kv == nil {
		return nil, Errorf(Denied, "kv bucket %q is not granted", bucket)
	}
	return c.start(func(ctx context.Context) (any, error) { return op(ctx, kv) })
}

// ImageStart renders a buffer into pictures.
func (c *Call) ImageStart(id uint32, source int32, targets []Target) (*Ticket, error) {
	if _, err := c.named(id); err != nil {
		return nil, err
	}
	if c.grants.Images == nil {
		return nil, Errorf(Denied, "image is not granted")
	}
	b, err := c.Buffer(source)
	if err != nil {
		return nil, err
	}
	return c.start(func(ctx context.Context) (any, error) { return c.render(ctx, b, targets) })
}

func (c *Call) render(ctx context.Context, b []byte, targets []Target) (*ImageAnswer, error) {
	rendered, err := c.grants.Images.Render(ctx, b, targets)
	if err != nil {
		return nil, err
	}
	answer := &ImageAnswer{Rendered: rendered}
	for _, p := range rendered.Pictures {
		kept, err := c.keep(p.Data)
		if err != nil {
			return nil, err
		}
		answer.Pictures = append(answer.Pictures, kept)
	}
	return answer, nil
}

// PublishStart publishes a message. In a transaction it is sent after the
// commit, and dropped with the delivery's other effects; its ticket is finished
// at once. key, when not empty, takes the place of the content in the message id.
func (c *Call) PublishStart(id uint32, m *Outgoing, key string) (*Ticket, error) {
	d, err := c.named(id)
	if err != nil {
		return nil, err
	}
	if c.grants.Publish == nil {
		return nil, Errorf(Denied, "publish is not granted")
	}
	if c.publishes++; c.publishes > c.limits.Publishes {
		return nil, Errorf(Limit, "limits.publishes of %d is reached", c.limits.Publishes)
	}
	if int64(len(m.Data)) > c.limits.PublishSize {
		return nil, Errorf(TooLarge, "the message has %d bytes, limits.publish_size is %d", len(m.Data), c.limits.PublishSize)
	}
	if err := c.grants.Publish.Check(c.Context(), m); err != nil {
		return nil, err
	}
	if c.tx == nil || key != "" { // otherwise the outbox row's number is as good
		m.MsgID = c.msgID(d, m, key)
	}
	if err := c.hop(d, &m.Headers); err != nil {
		return nil, err
	}
	if c.tx != nil {
		return c.publishLater(d, m)
	}
	return c.start(func(ctx context.Context) (any, error) { return c.grants.Publish.Publish(ctx, m) })
}

// AskStart asks a service; the ticket's value is a *ServiceReply.
func (c *Call) AskStart(id uint32, q *Question) (*Ticket, error) {
	d, err := c.named(id)
	if err != nil {
		return nil, err
	}
	if c.grants.Ask == nil {
		return nil, Errorf(Denied, "request is not granted")
	}
	if c.asked++; c.asked > c.limits.Requests {
		return nil, Errorf(Limit, "limits.requests of %d is reached", c.limits.Requests)
	}
	if int64(len(q.Data)) > c.limits.PublishSize {
		return nil, Errorf(TooLarge, "the request has %d bytes, limits.publish_size is %d", len(q.Data), c.limits.PublishSize)
	}
	if err := c.grants.Ask.Check(q); err != nil {
		return nil, err
	}
	if err := c.hop(d, &q.Headers); err != nil {
		return nil, err
	}
	return c.start(func(ctx context.Context) (any, error) { return c.ask(ctx, q) })
}

func (c *Call) ask(ctx context.Context, q *Question) (*ServiceReply, error) {
	if q.Timeout > 0 {
		shorter, cancel := context.WithTimeoutCause(ctx, q.Timeout, errNoAnswer)
		defer cancel()
		ctx = shorter
	}
	answer, err := c.grants.Ask.Ask(ctx, q)
	if err != nil && context.Cause(ctx) == errNoAnswer {
		return nil, Errorf(Unavailable, "request %s: no answer in %s", q.Subject, q.Timeout)
	}
	if err != nil {
		return nil, err
	}
	kept, err := c.keep(answer.Data)
	return &ServiceReply{Answer: answer, Body: kept}, err
}

var errNoAnswer = errors.New("no answer in time")

// publishLater keeps a message for after the commit; it counts as a buffer.
func (c *Call) publishLater(d *Delivery, m *Outgoing) (*Ticket, error) {
	if err := c.charge(len(m.Data)); err != nil {
		return nil, err
	}
	ticket, err := c.answered(PubAck{})
	if err == nil {
		d.publishes = append(d.publishes, m)
	}
	return ticket, err
}
