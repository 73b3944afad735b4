package sqlite

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pelton-run/pelton/host"
)

var (
	made   = time.Unix(1000, 5)
	origin = host.Source{Function: "f", Durable: "d", Stream: "S", Created: made.UnixNano()}
)

func message(sequence uint64) *host.Message {
	return &host.Message{Stream: "S", StreamCreated: made, Consumer: "d", StreamSeq: sequence, Timestamp: made.Add(time.Duration(sequence) * time.Second)}
}

func messages(sequences ...uint64) (all []*host.Message) {
	for _, n := range sequences {
		all = append(all, message(n))
	}
	return all
}

// reopen opens the file as another run of the host does.
func reopen(t *testing.T, path string) *Database {
	t.Helper()
	d, err := Open(t.Context(), "test", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

func seal(t *testing.T, d *Database, done []*host.Message, send ...*host.Outgoing) {
	t.Helper()
	tx := begin(t, d)
	if err := errors.Join(tx.Seal(t.Context(), "f", done, send), tx.Commit(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// known says which of some sequences are done.
func known(t *testing.T, d *Database, function string, all []*host.Message) []bool {
	t.Helper()
	tx := begin(t, d)
	defer tx.Rollback()
	got, err := tx.Known(t.Context(), function, all)
	if err != nil {
		t.Fatal(err)
	}
	if got == nil {
		got = make([]bool, len(all))
	}
	return got
}

// What is done is known by the function, the epoch, the durable, the stream and
// when it was made; a copy of the file knows the same.
func TestInbox(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	d := reopen(t, path)
	seal(t, d, messages(3, 5))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = reopen(t, path)
	defer d.Close()
	if got, want := known(t, d, "f", messages(2, 3, 4, 5, 6)), []bool{false, true, false, true, false}; !slices.Equal(got, want) {
		t.Errorf("known %v, want %v", got, want)
	}
	if known(t, d, "g", messages(3))[0] {
		t.Error("another function knows the message")
	}
	for what, change := range map[string]func(m *host.Message){
		"epoch": func(m *host.Message) { m.Epoch = "e" }, "durable": func(m *host.Message) { m.Consumer = "e" }, "stream": func(m *host.Message) { m.Stream = "T" },
		"creation": func(m *host.Message) { m.StreamCreated = made.Add(1) },
	} {
		m := message(3)
		if change(m); known(t, d, "f", []*host.Message{m})[0] {
			t.Errorf("another %s is known", what)
		}
	}
	tx := begin(t, d)
	if err := errors.Join(tx.Seal(t.Context(), "f", messages(9), nil), tx.Rollback()); err != nil {
		t.Fatal(err)
	}
	if known(t, d, "f", messages(9))[0] {
		t.Error("a transaction that was undone is known")
	}
	p, err := d.Position(t.Context(), origin)
	if want := (host.Position{High: 5, HighAt: message(5).Timestamp}); err != nil || p.Floor != want.Floor || p.High != want.High || !p.HighAt.Equal(want.HighAt) {
		t.Errorf("position %+v, %v; want %+v", p, err, want)
	}
}

// A message with the number of one that is done, stored much later than all that
// are, is another one: the stream went back.
func TestWentBack(t *testing.T) {
	d := reopen(t, filepath.Join(t.TempDir(), "test.db"))
	defer d.Close()
	seal(t, d, messages(1, 2, 3))
	late := message(2)
	late.Timestamp = message(3).Timestamp.Add(maxSkew + 1)
	tx := begin(t, d)
	defer tx.Rollback()
	if _, err := tx.Known(t.Context(), "f", []*host.Message{late}); !errors.Is(err, host.ErrWentBack) {
		t.Errorf("known: %v, want %v", err, host.ErrWentBack)
	}
	late.Timestamp = message(3).Timestamp.Add(maxSkew)
	if got, err := tx.Known(t.Context(), "f", []*host.Message{late}); err != nil || !got[0] {
		t.Errorf("within the skew of clocks: %v, %v", got, err)
	}
}

// Whatever the order in which messages are done, undone and acked, and however
// often the file is opened anew: known is what is done, and the rows are few.
func TestInboxLaws(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		path := filepath.Join(t.TempDir(), "test.db")
		d := reopen(t, path)
		defer func() { d.Close() }()
		done := map[uint64]bool{}
		for range rapid.IntRange(1, 10).Draw(r, "steps") {
			var batch []uint64
			for _, n := range rapid.SliceOfNDistinct(rapid.Uint64Range(1, 400), 1, 120, rapid.ID[uint64]).Draw(r, "batch") {
				if !done[n] {
					batch = append(batch, n)
				}
			}
			switch rapid.IntRange(0, 4).Draw(r, "step") {
			case 0:
				d.Close()
				d = reopen(t, path)
			case 1:
				tx := begin(t, d)
				if err := errors.Join(tx.Seal(t.Context(), "f", messages(batch...), nil), tx.Rollback()); err != nil {
					r.Fatal(err)
				}
			default:
				seal(t, d, messages(batch...))
				for _, n := range batch {
					done[n] = true
				}
				floor := uint64(0)
				for done[floor+1] {
					floor++
				}
				d.Raise(origin, floor)
			}
			all := make([]uint64, 410)
			for i := range all {
				all[i] = uint64(i + 1)
			}
			for i, got := range known(t, d, "f", messages(all...)) {
				if got != done[all[i]] {
					r.Fatalf("message %d: known %v, done %v", all[i], got, done[all[i]])
				}
			}
		}
	})
}

// Rows are forgotten in the transaction that raises the floor, and no earlier.
func TestFloor(t *testing.T) {
	d := reopen(t, filepath.Join(t.TempDir(), "test.db"))
	defer d.Close()
	rows := func() (n int) {
		if err := d.outbox.QueryRow("SELECT count(*) FROM _pelton_done").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for n := uint64(1); n <= 3*raiseEvery; n++ {
		seal(t, d, messages(n))
		d.Raise(origin, n+1000) // the stream acks more than this inbox has seen
	}
	if n := rows(); n > raiseEvery {
		t.Errorf("%d rows after %d messages, want no more than %d", n, 3*raiseEvery, raiseEvery)
	}
	p, err := d.Position(t.Context(), origin)
	if err != nil || p.Floor < raiseEvery || p.Floor > p.High {
		t.Errorf("position %+v, %v", p, err)
	}
	if !known(t, d, "f", messages(1))[0] || known(t, d, "f", messages(3*raiseEvery+1))[0] {
		t.Error("below the floor all is known, and above what is done nothing")
	}
}

// An outbox keeps messages as they are, in their order, until they are sent, and
// never uses a number twice.
func TestOutbox(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	d := reopen(t, path)
	defer func() { d.Close() }()
	odd := map[string][]string{"X-Trace": {"a", "b: c", ""}, "x-trace": {"\xff\x00"}}
	seal(t, d, nil, &host.Outgoing{Subject: "a", Headers: odd, Data: []byte{0, 1}, MsgID: "mine"}, &host.Outgoing{Subject: "b", Core: true})
	tx := begin(t, d)
	if err := errors.Join(tx.Seal(t.Context(), "f", nil, []*host.Outgoing{{Subject: "undone"}}), tx.Undo(t.Context()), tx.Commit(t.Context())); err != nil {
		t.Fatal(err)
	}
	d.Close()
	d = reopen(t, path)
	page, err := d.Unsent(t.Context(), "f", 0)
	if err != nil || len(page) != 2 {
		t.Fatalf("%d rows, %v; want 2", len(page), err)
	}
	a, b := page[0].Message, page[1].Message
	if a.Subject != "a" || !maps.EqualFunc(a.Headers, odd, slices.Equal) || string(a.Data) != "\x00\x01" || a.MsgID != "mine" || a.Core {
		t.Errorf("the first row is %+v", a)
	}
	if b.Subject != "b" || !b.Core || b.MsgID != fmt.Sprintf("%s/%d", d.identity, page[1].ID) {
		t.Errorf("the second row is %+v", b)
	}
	if rest, err := d.Unsent(t.Context(), "f", page[0].ID); err != nil || len(rest) != 1 {
		t.Errorf("above the first: %d rows, %v", len(rest), err)
	}
	if other, err := d.Unsent(t.Context(), "g", 0); err != nil || len(other) != 0 {
		t.Errorf("of another function: %d rows, %v", len(other), err)
	}
	d.Sent("f", page[1].ID)
	if err := d.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := d.Backlog(t.Context(), "f", 0); err != nil || n != 0 {
		t.Errorf("%d rows are left, %v", n, err)
	}
	seal(t, d, nil, &host.Outgoing{Subject: "c"})
	if page, err := d.Unsent(t.Context(), "f", 0); err != nil || len(page) != 1 || page[0].ID <= b2id(b, d) {
		t.Errorf("the next row is %+v, %v: its number was used before", page, err)
	}
}

// b2id is the number in a row's message id.
func b2id(m *host.Outgoing, d *Database) (id int64) {
	fmt.Sscanf(m.MsgID, d.identity+"/%d", &id)
	return id
}

// A guest neither sees nor touches what is the host's.
func TestOursAreHidden(t *testing.T) {
	d := reopen(t, filepath.Join(t.TempDir(), "test.db"))
	defer d.Close()
	tx := begin(t, d)
	defer tx.Rollback()
	exec(t, tx, "CREATE TABLE mine (v)")
	exec(t, tx, "CREATE INDEX mine_v ON mine (v)")
	exec(t, tx, "CREATE VIRTUAL TABLE words USING fts5(v)")
	for _, name := range []string{"_pelton_identity", "_pelton_sources", "_pelton_done", "_PELTON_OUTBOX", "main._pelton_outbox"} {
		for _, q := range []string{"SELECT * FROM %s", "DELETE FROM %s", "DROP TABLE %s", "INSERT INTO %s DEFAULT VALUES", "CREATE VIEW v AS SELECT * FROM %s", "CREATE TRIGGER x AFTER INSERT ON %s BEGIN SELECT 1; END", "CREATE TRIGGER y AFTER INSERT ON mine BEGIN DELETE FROM %s; END"} {
			q = fmt.Sprintf(q, name)
			if _, err := tx.Exec(t.Context(), q, nil); err == nil {
				if _, err = tx.Query(t.Context(), "SELECT * FROM v", nil, wide); err == nil {
					t.Errorf("%s is permitted", q)
				}
				tx.Exec(t.Context(), "DROP VIEW v", nil)
			}
		}
	}
	for _, q := range []string{"SELECT name FROM sqlite_schema", "SELECT sql FROM sqlite_master", "SELECT * FROM pragma_table_list", "SELECT * FROM sqlite_sequence"} {
		if _, err := tx.Query(t.Context(), q, nil, wide); host.ErrnoOf(err) != host.Denied {
			t.Errorf("%s: %v, want denied", q, err)
		}
		d.Query(t.Context(), "DROP TABLE mine", nil, wide) // which a reader cannot
		if _, err := d.Query(t.Context(), q, nil, wide); host.ErrnoOf(err) != host.Denied {
			t.Errorf("%s by a reader: %v, want denied", q, err)
		}
	}
}
