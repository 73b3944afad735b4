package runtime

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/host/sqlite"
)

// withDatabase makes a function with a real database, that has a table with one row.
func withDatabase(t *testing.T, invoke invokerFunc) *Function {
	t.Helper()
	db, err := sqlite.Open(t.Context(), "d", filepath.Join(t.TempDir(), "d.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := db.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"CREATE TABLE a (v TEXT UNIQUE)", "INSERT INTO a VALUES ('there')"} {
		if _, err := tx.Exec(t.Context(), q, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	var log []string
	return newFunction(t, &host.Grants{Write: "d", Databases: map[string]host.Database{"d": db}, Sender: &fakeSender{log: &log}}, invoke)
}

// A message whose handler has SQLite undo the transaction is charged, whatever the
// handler says of it afterwards; its neighbours are committed.
func TestLostTransaction(t *testing.T) {
	for name, ending := range map[string]host.Disposition{"it swallows the error": host.Ack, "it fails": host.Nak} {
		f := withDatabase(t, func(c *host.Call) error {
			for i, d := range c.Deliveries() {
				id := host.BatchID + 1 + uint32(i)
				if err := c.Begin(id); err != nil {
					c.End(host.BatchID, host.Outcome{Disposition: host.Nak, Reason: err.Error()}) // as the SDK does
					return nil
				}
				q, o := "INSERT INTO a VALUES (?)", host.Outcome{Disposition: host.Ack}
				v := d.Message.Subject
				if v == "m.2" {
					q, v, o.Disposition = "INSERT OR ROLLBACK INTO a VALUES (?)", "there", ending
				}
				c.Exec(id, "d", q, []any{v})
				c.End(id, o)
			}
			return nil
		})
		batch, got := batchOf(5)
		f.Dispatch(t.Context(), batch)
		for i, d := range got {
			want := "ack"
			if i == 2 {
				want = "retry"
			}
			if s := strings.Join(d.settled, ","); s != want {
				t.Errorf("%s: message %d settled %s, want %s", name, i, s, want)
			}
		}
		rows, err := f.outbox.db.Query(t.Context(), "SELECT count(*) FROM a", nil, host.RowLimit{Rows: 1, Bytes: 100})
		if err != nil || rows.Values[0] != int64(5) {
			t.Errorf("%s: %v rows, %v; want the one and four", name, rows, err)
		}
	}
}

// What is finished when the host cannot wait any longer is kept.
func TestFinishedAtTheStop(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	f := withDatabase(t, func(c *host.Call) error {
		if err := c.Begin(host.BatchID + 1); err != nil {
			return err
		}
		_, err := c.Exec(host.BatchID+1, "d", "INSERT INTO a VALUES ('new')", nil)
		err = errors.Join(err, c.End(host.BatchID+1, host.Outcome{Disposition: host.Ack}))
		cancel(errors.New("the host stops"))
		return err
	})
	batch, got := batchOf(1)
	f.Dispatch(ctx, batch)
	if s := strings.Join(got[0].settled, ","); s != "ack" {
		t.Errorf("settled %s, want ack", s)
	}
}

// A request that goes well says nothing about what the stream's messages need.
func TestBreakerAndRequests(t *testing.T) {
	acked := host.Nak
	f := newFunction(t, nil, func(c *host.Call) error {
		endAll(c, func(int) host.Outcome { return host.Outcome{Disposition: acked} })
		return nil
	})
	batch, _ := batchOf(BreakerAfter)
	for i := range batch {
		acked = host.Nak
		f.Dispatch(t.Context(), batch[i:i+1])
		acked = host.Ack
		request := &fakeDelivery{m: &host.Message{Reply: "r"}}
		f.Dispatch(t.Context(), []Delivery{request})
	}
	if all := f.Troubles(); len(all) != 1 || all[0].State != Degraded {
		t.Errorf("troubles %+v, want an open breaker", all)
	}
}
