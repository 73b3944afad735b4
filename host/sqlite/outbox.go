package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/pelton-run/pelton/host"
)

// Bounds of a page of unsent rows.
const (
	pageRows  = 500
	pageBytes = 4 << 20
)

// post writes down what is to be sent after the commit.
func (t *tx) post(function string, send []*host.Outgoing) error {
	for _, m := range send {
		const insert = `INSERT INTO _pelton_outbox (function, subject, headers, data, msg_id, core) VALUES (?, ?, ?, ?, ?, ?)`
		data := m.Data
		if data == nil {
			data = []byte{} // nil is NULL
		}
		if err := t.exec(insert, function, m.Subject, encodeHeaders(m.Headers), data, m.MsgID, m.Core); err != nil {
			return err
		}
	}
	return nil
}

// forget removes the rows that have been sent, if there are any.
func (t *tx) forget() error {
	t.d.mu.Lock()
	sent := maps.Clone(t.d.sent)
	t.d.mu.Unlock()
	for function, upTo := range sent {
		host.CrashPoint("before forget", "")
		if err := t.exec(`DELETE FROM _pelton_outbox WHERE function = ? AND id <= ?`, function, upTo); err != nil {
			return err
		}
	}
	if len(sent) > 0 {
		t.onCommit = append(t.onCommit, func() { t.d.forgotten(sent) })
	}
	return nil
}

// forgotten takes note that rows are gone.
func (d *Database) forgotten(rows map[string]int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for function, upTo := range rows {
		if d.sent[function] == upTo {
			delete(d.sent, function)
		}
	}
}

// Sent implements host.Database.
func (d *Database) Sent(function string, upTo int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sent[function] = max(d.sent[function], upTo)
}

// Tidy implements host.Database.
func (d *Database) Tidy(ctx context.Context) error {
	d.mu.Lock()
	none := len(d.sent) == 0
	d.mu.Unlock()
	if none {
		return nil
	}
	begun, err := d.Begin(ctx)
	if err != nil {
		return err
	}
	t := begun.(*tx)
	if err := t.w.policy.asHost(func() error { return t.forget() }); err != nil {
		t.Rollback() // the first error tells more
		return fmt.Errorf("forget what was sent, in database %s: %w", d.name, err)
	}
	return t.Commit(ctx)
}

// Unsent implements host.Database.
func (d *Database) Unsent(ctx context.Context, function string, above int64) (page []host.Unsent, err error) {
	const query = `SELECT id, subject, headers, data, msg_id, core FROM _pelton_outbox WHERE function = ? AND id > ? ORDER BY id LIMIT ?`
	rows, err := d.outbox.QueryContext(ctx, query, function, above, pageRows)
	if err != nil {
		return nil, fmt.Errorf("read the outbox of database %s: %w", d.name, err)
	}
	defer rows.Close()
	for size := 0; size < pageBytes && rows.Next(); {
		u := host.Unsent{Message: &host.Outgoing{}}
		var headers []byte
		if err := rows.Scan(&u.ID, &u.Message.Subject, &headers, &u.Message.Data, &u.Message.MsgID, &u.Message.Core); err != nil {
			return nil, fmt.Errorf("read the outbox of database %s: %w", d.name, err)
		}
		u.Message.Headers = decodeHeaders(headers)
		if u.Message.MsgID == "" {
			u.Message.MsgID = d.identity + "/" + strconv.FormatInt(u.ID, 10)
		}
		size += len(headers) + len(u.Message.Data)
		page = append(page, u)
	}
	return page, rows.Err()
}

// Backlog is how many rows of a function's outbox lie above an id.
func (d *Database) Backlog(ctx context.Context, function string, above int64) (n int, err error) {
	err = d.outbox.QueryRowContext(ctx, `SELECT count(*) FROM _pelton_outbox WHERE function = ? AND id > ?`, function, above).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the outbox of database %s: %w", d.name, err)
	}
	return n, nil
}

// encodeHeaders writes a line for each value, as NATS itself does: neither names
// nor values can have line breaks, and names no colon.
func encodeHeaders(h map[string][]string) []byte {
	b := []byte{}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, v := range h[name] {
			b = append(b, name...)
			b = append(b, ':')
			b = append(b, v...)
			b = append(b, '\n')
		}
	}
	return b
}

func decodeHeaders(b []byte) map[string][]string {
	if len(b) == 0 {
		return nil
	}
	h := map[string][]string{}
	for line := range bytes.Lines(b) {
		name, v, _ := bytes.Cut(bytes.TrimSuffix(line, []byte{'\n'}), []byte{':'})
		h[string(name)] = append(h[string(name)], string(v))
	}
	return h
}
