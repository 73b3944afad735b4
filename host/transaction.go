package host

import "context"

// Start opens the transaction when the function has a write grant, and looks the
// messages up in its inbox: known tells which of them are done already, nil for
// none. It waits for the writer as long as the invocation may run.
func (c *Call) Start() (known []bool, err error) {
	if c.grants.Write == "" {
		return nil, nil
	}
	tx, err := c.grants.Databases[c.grants.Write].Begin(c.Context())
	if err != nil {
		return nil, err
	}
	c.tx = tx
	messages := make([]*Message, len(c.deliveries))
	for i := range c.deliveries {
		messages[i] = c.deliveries[i].Message
	}
	return tx.Known(c.Context(), c.Function, messages)
}

// Drop takes the deliveries that are known out of the call.
func (c *Call) Drop(known []bool) {
	kept := c.deliveries[:0]
	for i, d := range c.deliveries {
		if !known[i] {
			kept = append(kept, d)
		}
	}
	c.deliveries = kept
}

// Publishes appends what waits for the commit, in order: what was published for
// the batch, and for each delivery that is acked.
func (c *Call) Publishes(send []*Outgoing) []*Outgoing {
	if !c.anyAcked() {
		return send
	}
	send = append(send, c.batch.publishes...)
	for i := range c.deliveries {
		if c.deliveries[i].Outcome.Disposition == Ack {
			send = append(send, c.deliveries[i].publishes...)
		}
	}
	return send
}

// Commit makes the transaction's effects durable, together with which messages
// are done and what is to be sent afterwards. When no delivery is acked, what the
// handler did is undone first. Without a transaction that is open it opens one.
func (c *Call) Commit(ctx context.Context, done []*Message, send []*Outgoing) error {
	if c.tx == nil || c.txDone {
		return c.commitApart(ctx, done, send)
	}
	c.txDone = true
	if !c.anyAcked() {
		if len(done) == 0 && len(send) == 0 {
			return c.tx.Rollback()
		}
		if err := c.tx.Undo(ctx); err != nil {
			c.tx.Rollback() // the first error tells more
			return err
		}
	}
	return seal(ctx, c.tx, c.Function, done, send)
}

// commitApart notes what became of messages whose transaction is gone.
func (c *Call) commitApart(ctx context.Context, done []*Message, send []*Outgoing) error {
	if len(done) == 0 && len(send) == 0 {
		return nil
	}
	tx, err := c.grants.Databases[c.grants.Write].Begin(ctx)
	if err != nil {
		return err
	}
	return seal(ctx, tx, c.Function, done, send)
}

func seal(ctx context.Context, tx Tx, function string, done []*Message, send []*Outgoing) error {
	if err := tx.Seal(ctx, function, done, send); err != nil {
		tx.Rollback() // the first error tells more
		return err
	}
	return tx.Commit(ctx)
}

func (c *Call) anyAcked() bool {
	for i := range c.deliveries {
		if c.deliveries[i].Outcome.Disposition == Ack {
			return true
		}
	}
	return false
}

// FailAll has every delivery come again because of an error that is none of the
// handler's; charged says whether it counts as an attempt all the same.
func (c *Call) FailAll(err error, charged bool) {
	for i := range c.deliveries {
		d := &c.deliveries[i]
		d.Outcome, d.Response = Outcome{Disposition: Nak, Reason: err.Error(), Blameless: !charged}, nil
	}
}
