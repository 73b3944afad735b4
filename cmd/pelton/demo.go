package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/pelton-run/pelton/cmd/pelton/demo"
)

func demoCommand() *cobra.Command {
	var config demo.Config
	var level string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole job on this machine and check its outcome",
		Long: `Run the shipped functions on an embedded NATS server against stand-ins for the
outside world, publish events (repeated, stale, removed and broken ones among
them), wait until everything is done, and check the outcome. The exit status is
0 only if every check holds.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if config.Folder == "" {
				folder, err := besideExecutable()
				if err != nil {
					return err
				}
				config.Folder = folder
			}
			log, err := logger(level)
			if err != nil {
				return err
			}
			config.Log, config.Out, config.Notes = log, cmd.OutOrStdout(), io.Writer(os.Stderr)
			err = demo.Run(cmd.Context(), config)
			switch {
			case errors.Is(err, demo.ErrChecks) && config.JSON:
				return errReported
			case errors.Is(err, demo.ErrUsage):
				return usageError{err}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.IntVar(&config.Events, "events", 200, "how many events to publish")
	f.StringVar(&config.Folder, "dir", "", "folder with the shipped functions (default: functions beside the executable)")
	f.StringVar(&config.Data, "data", "", "folder for the results, kept to look at (default: one that is removed)")
	f.BoolVar(&config.Keep, "keep", false, "leave it running")
	f.StringVar(&config.Listen, "listen", "", "address of the embedded server (default: any free port; 127.0.0.1:4222 with --keep)")
	f.BoolVar(&config.JSON, "json", false, "print JSON")
	f.StringVar(&level, "log-level", "error", "debug, info, warn or error")
	return cmd
}

func besideExecutable() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the functions: %w; name their folder with --dir", err)
	}
	return filepath.Join(filepath.Dir(path), "functions"), nil
}
