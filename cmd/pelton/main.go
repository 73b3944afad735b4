// Command pelton runs functions on NATS JetStream.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pelton-run/pelton/cmd/pelton/up"
)

// The exit statuses.
const (
	exitFailed = 1
	exitUsage  = 2
)

// usageError marks a command line that makes no sense.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// errReported says that a command has printed why it failed.
var errReported = errors.New("reported")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		<-ctx.Done()
		stop() // a second signal ends the process at once
	}()
	os.Exit(run(ctx, os.Args[1:]))
}

// run runs a command line and returns the exit status.
func run(ctx context.Context, args []string) int {
	ctx, refuse := withRefusal(ctx)
	root := rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	refuse(nil)
	if refusal := refusalOf(ctx); err != nil && refusal != nil {
		err = refusal // rather than what it led to
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errReported):
		return exitFailed
	}
	fmt.Fprintln(os.Stderr, "pelton:", err)
	if errors.As(err, &usageError{}) {
		return exitUsage
	}
	return exitFailed
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "pelton",
		Short: "A function runtime for NATS JetStream",
		Long: `Pelton runs functions on a stream. Drop a .wasm file and a manifest into a
folder; the host subscribes a durable consumer for it and calls its handler for
every message, inside a WebAssembly sandbox.`,
		Version: up.Version,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("there is no command %q; see pelton --help", args[0])}
			}
			return nil
		},
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see --help", err)}
	})
	root.AddCommand(upCommand(), demoCommand(), checkCommand(), lsCommand(), infoCommand(), dlqCommand(), permissionsCommand(), dbCommand())
	wrapArgs(root)
	return root
}

// wrapArgs has wrong arguments of every command, and flags that exclude one another,
// be wrong usage.
func wrapArgs(parent *cobra.Command) {
	for _, c := range parent.Commands() {
		wrapArgs(c)
		args := c.Args
		if args == nil {
			args = cobra.NoArgs
		}
		c.Args = func(cmd *cobra.Command, a []string) error {
			if err := errors.Join(args(cmd, a), cmd.ValidateFlagGroups()); err != nil {
				return usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
			}
			return nil
		}
	}
}
