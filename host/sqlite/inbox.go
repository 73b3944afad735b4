package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pelton-run/pelton/host"
)

// The tables of delivery. A source is a durable's messages as one function takes
// them in one epoch. Everything from since, the first that was done, up to the floor
// is done; what else is done has a row. An outbox row is sent after its commit, in
// the order of ids, which are not used twice.
const schema = `
CREATE TABLE IF NOT EXISTS _pelton_identity (uuid TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS _pelton_sources (
	id INTEGER PRIMARY KEY, function TEXT NOT NULL, epoch TEXT NOT NULL, durable TEXT NOT NULL, stream TEXT NOT NULL,
	created INTEGER NOT NULL, since INTEGER NOT NULL DEFAULT 0, floor INTEGER NOT NULL DEFAULT 0, high INTEGER NOT NULL DEFAULT 0, high_at INTEGER NOT NULL DEFAULT 0,
	UNIQUE (function, epoch, durable, stream, created)) STRICT;
CREATE TABLE IF NOT EXISTS _pelton_done (
	source INTEGER NOT NULL, sequence INTEGER NOT NULL, PRIMARY KEY (source, sequence)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS _pelton_outbox (
	id INTEGER PRIMARY KEY AUTOINCREMENT, function TEXT NOT NULL, subject TEXT NOT NULL, headers BLOB NOT NULL,
	data BLOB NOT NULL, msg_id TEXT NOT NULL, core INTEGER NOT NULL) STRICT;`

// raiseEvery is how many rows of done gather before a transaction forgets those
// below the floor: one by one costs more.
const raiseEvery = 1000

// maxSkew is how much later than one that was stored after it a message can seem
// to be stored: two servers that led the stream have two clocks.
const maxSkew = time.Minute

// source is what is known of a source without asking the file. Whoever has the
// database's turn reads and writes it; raised is under the database's lock.
type source struct {
	id       int64
	position host.Position
	raised   uint64 // that the floor may be raised to
	rows     int    // above the floor, about
}

// Ready makes the tables of delivery and returns the database's identity, which
// was made with the file and goes where a copy of it goes. A function that writes
// needs it before its first transaction.
func (d *Database) Ready(ctx context.Context) (identity string, err error) {
	w, err := d.take(ctx)
	if err != nil {
		return "", err
	}
	defer d.give()
	err = w.policy.asHost(func() error {
		if _, err := w.conn.ExecContext(ctx, schema); err != nil {
			return err
		}
		var random [16]byte
		rand.Read(random[:]) // never fails, see crypto/rand
		const insert = `INSERT INTO _pelton_identity SELECT ? WHERE NOT EXISTS (SELECT 1 FROM _pelton_identity)`
		if _, err := w.conn.ExecContext(ctx, insert, hex.EncodeToString(random[:])); err != nil {
			return err
		}
		return w.conn.QueryRowContext(ctx, `SELECT uuid FROM _pelton_identity`).Scan(&identity)
	})
	if err != nil {
		return "", fmt.Errorf("make the tables of delivery in database %s: %w", d.name, err)
	}
	d.identity = identity
	return identity, nil
}

// Identity implements host.Database; Ready has been called.
func (d *Database) Identity() string { return d.identity }

// Position implements host.Database: it returns how far the inbox is with a source.
func (d *Database) Position(ctx context.Context, s host.Source) (p host.Position, err error) {
	w, err := d.take(ctx)
	if err != nil {
		return p, err
	}
	defer d.give()
	err = w.policy.asHost(func() error {
		found, err := d.source(ctx, w, s)
		if found != nil {
			p = found.position
		}
		return err
	})
	if err != nil {
		return p, fmt.Errorf("read the inbox of database %s: %w", d.name, err)
	}
	return p, nil
}

// Raise implements host.Database.
func (d *Database) Raise(s host.Source, sequence uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.sources[s]; known != nil {
		known.raised = max(known.raised, sequence)
	}
}

// source returns what is known of a source, from the file if need be; nil when
// there is nothing. It is for whoever has the turn.
func (d *Database) source(ctx context.Context, w *connection, s host.Source) (*source, error) {
	d.mu.Lock()
	known := d.sources[s]
	d.mu.Unlock()
	if known != nil {
		return known, nil
	}
	known, err := w.find(ctx, s)
	if known != nil {
		d.remember(s, known)
	}
	return known, err
}

func (d *Database) remember(s host.Source, known *source) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sources[s] = known
}

func (w *connection) find(ctx context.Context, s host.Source) (*source, error) {
	const query = `SELECT id, since, floor, high, high_at, (SELECT count(*) FROM _pelton_done WHERE source = id)
		FROM _pelton_sources WHERE function = ? AND epoch = ? AND durable = ? AND stream = ? AND created = ?`
	found := &source{}
	var at int64
	err := w.conn.QueryRowContext(ctx, query, s.Function, s.Epoch, s.Durable, s.Stream, s.Created).
		Scan(&found.id, &found.position.Since, &found.position.Floor, &found.position.High, &at, &found.rows)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found.position.HighAt = time.Unix(0, at)
	return found, nil
}

// Known implements host.Tx.
func (t *tx) Known(ctx context.Context, function string, messages []*host.Message) (known []bool, err error) {
	if len(messages) == 0 || messages[0].Stream == "" {
		return nil, nil
	}
	err = t.w.policy.asHost(func() error {
		s, err := t.d.source(ctx, t.w, host.SourceOf(function, messages[0]))
		if s == nil || err != nil {
			return err
		}
		known, err = t.done(s, messages)
		return err
	})
	if errors.Is(err, host.ErrWentBack) {
		return nil, err
	}
	if err != nil {
		return nil, t.fail(ctx, err)
	}
	return known, nil
}

// done looks messages up. What is above everything that was ever done, as most
// messages are, needs no look.
func (t *tx) done(s *source, messages []*host.Message) ([]bool, error) {
	var known []bool
	note := func(i int) {
		if known == nil {
			known = make([]bool, len(messages))
		}
		known[i] = true
	}
	for i, m := range messages {
		switch {
		case m.StreamSeq > s.position.High:
			continue
		case m.Timestamp.Sub(s.position.HighAt) > maxSkew:
			return nil, fmt.Errorf("%w: message %d was stored at %s, and one with the number %d, which is done, at %s", host.ErrWentBack,
				m.StreamSeq, m.Timestamp.UTC().Format(time.RFC3339), s.position.High, s.position.HighAt.UTC().Format(time.RFC3339))
		case m.StreamSeq >= s.position.Since && m.StreamSeq <= s.position.Floor:
			note(i)
			continue
		}
		query, err := t.w.prepareControl(`SELECT 1 FROM _pelton_done WHERE source = ? AND sequence = ?`)
		if err != nil {
			return nil, err
		}
		var one int
		err = query.QueryRow(s.id, m.StreamSeq).Scan(&one)
		if err == nil {
			note(i)
		} else if !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
	}
	return known, nil
}

// Seal implements host.Tx.
func (t *tx) Seal(ctx context.Context, function string, done []*host.Message, send []*host.Outgoing) error {
	if t.lost {
		return host.ErrTxLost
	}
	err := t.w.policy.asHost(func() error {
		if err := t.mark(ctx, function, done); err != nil {
			return err
		}
		host.CrashPoint("done marked", "")
		if err := t.post(function, send); err != nil {
			return err
		}
		return t.forget()
	})
	if err != nil {
		return t.fail(ctx, err)
	}
	return nil
}

// mark writes down which messages are done.
func (t *tx) mark(ctx context.Context, function string, done []*host.Message) error {
	if len(done) == 0 || done[0].Stream == "" {
		return nil
	}
	key := host.SourceOf(function, done[0])
	s, err := t.d.source(ctx, t.w, key)
	if err != nil {
		return err
	}
	if s == nil {
		if s, err = t.newSource(ctx, key, lowest(done)); err != nil {
			return err
		}
	}
	sequences := make([]uint64, len(done))
	to := s.position
	for i, m := range done {
		sequences[i] = m.StreamSeq
		if m.StreamSeq > to.High {
			to.High, to.HighAt = m.StreamSeq, m.Timestamp
		}
	}
	list, err := json.Marshal(sequences)
	if err != nil {
		return err
	}
	const insert = `INSERT OR IGNORE INTO _pelton_done SELECT ?, value FROM json_each(?)`
	if err := t.exec(insert, s.id, string(list)); err != nil {
		return err
	}
	return t.advance(s, to, len(done))
}

// advance moves a source on, once the transaction is committed.
func (t *tx) advance(s *source, to host.Position, more int) error {
	rows := s.rows + more
	t.d.mu.Lock()
	raised := min(s.raised, to.High)
	t.d.mu.Unlock()
	if raised > to.Floor && rows >= raiseEvery {
		to.Floor, rows = raised, 0
		if err := t.exec(`DELETE FROM _pelton_done WHERE source = ? AND sequence BETWEEN ? AND ?`, s.id, to.Since, raised); err != nil {
			return err
		}
	}
	const update = `UPDATE _pelton_sources SET floor = ?, high = ?, high_at = ? WHERE id = ?`
	if err := t.exec(update, to.Floor, to.High, to.HighAt.UnixNano(), s.id); err != nil {
		return err
	}
	t.onCommit = append(t.onCommit, func() { s.position, s.rows = to, rows })
	return nil
}

func lowest(messages []*host.Message) uint64 {
	low := messages[0].StreamSeq
	for _, m := range messages {
		low = min(low, m.StreamSeq)
	}
	return low
}

// newSource makes a source that begins with a message: what the durable passed over
// before that was never handled here.
func (t *tx) newSource(ctx context.Context, key host.Source, since uint64) (*source, error) {
	const insert = `INSERT INTO _pelton_sources (function, epoch, durable, stream, created, since) VALUES (?, ?, ?, ?, ?, ?)`
	if err := t.exec(insert, key.Function, key.Epoch, key.Durable, key.Stream, key.Created, since); err != nil {
		return nil, err
	}
	s, err := t.w.find(ctx, key)
	if err != nil {
		return nil, err
	}
	t.onCommit = append(t.onCommit, func() { t.d.remember(key, s) })
	return s, nil
}

// exec runs one of the host's own statements.
func (t *tx) exec(query string, args ...any) error {
	s, err := t.w.prepareControl(query)
	if err != nil {
		return err
	}
	_, err = s.Exec(args...)
	return err
}
