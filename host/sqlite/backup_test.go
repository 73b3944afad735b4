package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A backup of a database that is written all the time is one moment of it: a sum and
// its rows agree, and the identity is the database's.
func TestBackup(t *testing.T) {
	d := open(t, "CREATE TABLE total (n INTEGER); INSERT INTO total VALUES (0); CREATE TABLE a (id INTEGER PRIMARY KEY, v BLOB)")
	identity, err := d.Ready(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	started := make(chan struct{})
	group.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			tx := begin(t, d)
			exec(t, tx, "INSERT INTO a (v) VALUES (randomblob(20000))")
			exec(t, tx, "UPDATE total SET n = n + 1")
			if err := tx.Commit(context.Background()); err != nil {
				t.Error(err)
				return
			}
			if i == 200 {
				close(started)
			}
		}
	})
	<-started
	to := filepath.Join(t.TempDir(), "a copy.db")
	steps := 0
	err = Backup(t.Context(), d.path, to, func(done, total int) {
		if steps++; done > total || done == 0 {
			t.Errorf("%d of %d pages", done, total)
		}
	})
	stop()
	group.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if steps < 1 {
		t.Error("no progress was told")
	}
	copied, err := Open(t.Context(), "copy", to)
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	if rows, total := number(t, copied, "SELECT count(*) FROM a"), number(t, copied, "SELECT n FROM total"); rows != total || rows < 200 {
		t.Errorf("%d rows, total %d", rows, total)
	}
	if got, err := copied.Ready(t.Context()); err != nil || got != identity {
		t.Errorf("identity %s, %v; want %s", got, err, identity)
	}
	if err := Backup(t.Context(), d.path, to, func(int, int) {}); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("onto a file that is there: %v", err)
	}
}

// What is broken off leaves nothing.
func TestBackupBrokenOff(t *testing.T) {
	d := open(t, "CREATE TABLE a (v)")
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Backup(ctx, d.path, filepath.Join(dir, "x.db"), func(int, int) {}); err == nil {
		t.Error("no error")
	}
	if err := Backup(t.Context(), filepath.Join(dir, "nothing.db"), filepath.Join(dir, "x.db"), func(int, int) {}); err == nil {
		t.Error("a file that is not there is backed up")
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
