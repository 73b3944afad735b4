package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"

	"modernc.org/sqlite"
)

// backupStep is how many pages are copied between two looks at the context.
const backupStep = 1000

// Backup copies a database into a file, while it is in use: the copy is what was
// committed when it began, the tables of delivery included. to must not exist; it is
// there whole, or not at all. progress is told of pages.
func Backup(ctx context.Context, path, to string, progress func(done, total int)) (err error) {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("back up database: %w", err)
	}
	if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("back up database: %s is there already", to)
	}
	part := to + ".part"
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove what is left of another backup: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(part)
		}
	}()
	own := &policy{}
	own.host.Store(true)
	db := sql.OpenDB(newConnector(path, busyForeign, own, url.Values{"mode": {"ro"}, "_query_only": {"1"}}))
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer conn.Close()
	if err := copyPages(ctx, conn, part, progress); err != nil {
		return fmt.Errorf("copy database: %w", err)
	}
	if err := checkCopy(ctx, part); err != nil {
		return fmt.Errorf("check the copy: %w", err)
	}
	return os.Rename(part, to)
}

// copyPages copies what one read transaction sees: without it the copy would begin
// anew with every commit.
func copyPages(ctx context.Context, conn *sql.Conn, to string, progress func(done, total int)) error {
	if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
		return err
	}
	defer conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK") // it only read
	var n int
	if err := conn.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&n); err != nil {
		return err
	}
	return conn.Raw(func(driverConn any) error {
		b, err := driverConn.(interface {
			NewBackup(string) (*sqlite.Backup, error)
		}).NewBackup((&url.URL{Scheme: "file", Opaque: url.PathEscape(to)}).String())
		if err != nil {
			return err
		}
		for more := true; more && err == nil; {
			if err = ctx.Err(); err != nil {
				break
			}
			if more, err = b.Step(backupStep); err == nil {
				progress(b.PageCount()-b.Remaining(), b.PageCount())
			}
		}
		return errors.Join(err, b.Finish())
	})
}

// checkCopy reads the copy and puts it on the disk.
func checkCopy(ctx context.Context, path string) error {
	own := &policy{}
	own.host.Store(true)
	db := sql.OpenDB(newConnector(path, busy, own, nil))
	defer db.Close()
	var verdict string
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&verdict); err != nil {
		return err
	}
	if verdict != "ok" {
		return errors.New(verdict)
	}
	// The copy of a file with a write-ahead log would have one too.
	if _, err := db.ExecContext(ctx, "PRAGMA journal_mode = DELETE"); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
