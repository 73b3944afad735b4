package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/pelton-run/pelton/cmd/pelton/up"
	"github.com/pelton-run/pelton/host/sqlite"
	"github.com/pelton-run/pelton/manifests"
)

func dbCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "db", Short: "Look after the databases of this host"}
	cmd.AddCommand(dbBackupCommand())
	return cmd
}

func dbBackupCommand() *cobra.Command {
	var data, place string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "backup <database> [file]",
		Short: "Copy a database while it is in use",
		Long: `Copy a database of this host into a file, while functions go on writing to it. The
copy is what was committed when it began, with the inbox and outbox of its functions:
a host that is given it in the place of the database goes on from there.`,
		Example: "  pelton db backup search\n  pelton db backup search /backup/search.db --data /var/lib/pelton --json",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := manifests.LoadHost(place)
			if err != nil {
				return err
			}
			from, err := up.DatabaseFile(h, data, args[0])
			if err != nil {
				return err
			}
			to := fmt.Sprintf("%s-%s.db", args[0], time.Now().UTC().Format("20060102T150405Z"))
			if len(args) == 2 {
				to = args[1]
			}
			return backup(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), from, to, asJSON)
		},
	}
	cmd.Flags().StringVar(&data, "data", "pelton-data", "the host's data folder, as of pelton up")
	cmd.Flags().StringVar(&place, "config", "", "the host's pelton.yaml, as of pelton up")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// backedUp is what a backup became.
type backedUp struct {
	Database string  `json:"database"` // its file
	File     string  `json:"file"`
	Bytes    int64   `json:"bytes"`
	Seconds  float64 `json:"seconds"`
}

func backup(ctx context.Context, out, notes io.Writer, from, to string, asJSON bool) error {
	begin, told := time.Now(), time.Now()
	err := sqlite.Backup(ctx, from, to, func(done, total int) {
		if time.Since(told) > time.Second {
			told = time.Now()
			fmt.Fprintf(notes, "%d of %d pages\n", done, total)
		}
	})
	if err != nil {
		return err
	}
	info, err := os.Stat(to)
	if err != nil {
		return fmt.Errorf("look at the copy: %w", err)
	}
	file, err := filepath.Abs(to)
	if err != nil {
		return fmt.Errorf("name the copy: %w", err)
	}
	b := backedUp{Database: from, File: file, Bytes: info.Size(), Seconds: time.Since(begin).Seconds()}
	if asJSON {
		return printJSON(out, b)
	}
	fmt.Fprintf(out, "%s: %d bytes in %.1f s\n", b.File, b.Bytes, b.Seconds)
	return nil
}
