package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"testing"

	"github.com/pelton-run/pelton/host"
)

// foreignRows is how many rows the other program writes, each in a transaction.
const foreignRows = 300

// foreign is the other program: it runs in a process of its own, see TestMain.
func foreign(path string) error {
	db, err := sql.Open("sqlite", "file:"+path+"?_busy_timeout=30000&_txlock=immediate")
	if err != nil {
		return err
	}
	defer db.Close()
	for i := range foreignRows {
		if _, err := db.Exec("INSERT INTO orders (who, n) VALUES ('foreign', ?)", i); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
	}
	return nil
}

// The application's own file, to which it goes on writing: nobody meets a lock,
// nothing is lost, and the tables of delivery are beside the application's.
func TestForeignWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	app, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := app.Exec("CREATE TABLE orders (id INTEGER PRIMARY KEY, who TEXT, n INTEGER)"); err != nil {
		t.Fatal(err)
	}
	app.Close()
	d, err := OpenForeign(t.Context(), "app", path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := osexec.CommandContext(t.Context(), os.Args[0])
	other.Env = append(os.Environ(), "PELTON_FOREIGN="+path)
	other.Stderr = os.Stderr
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- other.Wait() }()
	mine := int64(0)
	for running := true; running; {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("the other program: %v", err)
			}
			running = false
		default:
		}
		messages := []*host.Message{{Stream: "S", Consumer: "d", StreamSeq: uint64(mine + 1)}}
		tx := begin(t, d)
		if known, err := tx.Known(t.Context(), "f", messages); err != nil || known != nil {
			t.Fatalf("known = %v, %v", known, err)
		}
		exec(t, tx, "INSERT INTO orders (who, n) VALUES ('mine', ?)", mine)
		if err := tx.Seal(t.Context(), "f", messages, nil); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(context.Background()); err != nil {
			t.Fatal(err)
		}
		mine++
	}
	if got := number(t, d, "SELECT count(*) FROM orders WHERE who = 'foreign'"); got != foreignRows {
		t.Errorf("%d rows of the other program, want %d", got, foreignRows)
	}
	if got := number(t, d, "SELECT count(DISTINCT n) FROM orders WHERE who = 'mine'"); got != mine {
		t.Errorf("%d rows of ours, want %d", got, mine)
	}
}
