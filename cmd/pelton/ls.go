package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pelton-run/pelton/runtime/status"
)

func lsCommand() *cobra.Command {
	var conn connection
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the functions of all hosts with state and figures",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return conn.ask(cmd, func(ctx context.Context, nc *nats.Conn) error {
				hosts, err := status.ListHosts(ctx, nc, quiet)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), hosts)
				}
				if len(hosts) == 0 {
					return fmt.Errorf("no host answers on %s; start one with: pelton up", nc.ConnectedUrlRedacted())
				}
				return printFunctions(cmd.OutOrStdout(), hosts)
			})
		},
	}
	conn.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func printFunctions(w io.Writer, hosts []status.HostReport) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FUNCTION\tHOST\tREGION\tVERSION\tSTATE\tACKED\tNAK\tDEAD\tIN FLIGHT\tPENDING\tP50 MS\tP99 MS")
	var reasons []string
	for _, h := range hosts {
		for _, f := range h.Functions {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%.1f\t%.1f\n", f.Function, f.Host, dash(f.Region), dash(f.Version), f.State,
				f.Acked, f.Nak, f.DeadLetters, f.InFlight, f.Pending, f.HandlerP50, f.HandlerP99)
			for _, r := range f.Reasons {
				reasons = append(reasons, f.Function+" on "+f.Host+": "+r)
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range reasons {
		fmt.Fprintln(w, "\n"+strings.TrimSpace(r))
	}
	return nil
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
