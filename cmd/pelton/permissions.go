package main

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pelton-run/pelton/cmd/pelton/up"
	"github.com/pelton-run/pelton/manifests"
)

func permissionsCommand() *cobra.Command {
	var c up.PermissionsConfig
	var dir, place string
	var asJSON, asNSC bool
	cmd := &cobra.Command{
		Use:   "permissions",
		Short: "Print the least NATS permissions for a folder of functions",
		Long: `Print the least NATS permissions that a role needs for a folder of functions, as a
block for the server's configuration, as flags of nsc, or as JSON.

The roles are host (pelton up), deployer (who makes streams and durables), operator
(who redrives and removes dead letters) and viewer (pelton ls, info, dlq ls, dlq
show). Give each host an inbox prefix of its own: who may subscribe to _INBOX.> reads
everybody's answers.`,
		Example: "  pelton permissions --dir functions --name eu-1 --region eu --inbox-prefix _INBOX_eu-1\n  pelton permissions --role viewer --nsc",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(up.Roles(), c.Role) {
				return usageError{fmt.Errorf("--role: there is no role %q; %s", c.Role, strings.Join(up.Roles(), ", "))}
			}
			if err := readFunctions(&c, dir, place); err != nil {
				return err
			}
			p, err := up.PermissionsFor(c)
			if err != nil {
				return err
			}
			switch {
			case asJSON:
				return printJSON(cmd.OutOrStdout(), p)
			case asNSC:
				return printNSC(cmd.OutOrStdout(), p)
			}
			return printPermissions(cmd.OutOrStdout(), p)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Role, "role", up.RoleHost, strings.Join(up.Roles(), ", "))
	f.StringVar(&dir, "dir", "functions", "folder with the functions")
	f.StringVar(&place, "config", "", "the host's pelton.yaml: its object buckets")
	f.StringVar(&c.Host, "name", "", "the host's id; without it the permissions are for any host")
	f.StringVar(&c.Region, "region", "", "the host's region")
	f.StringVar(&c.InboxPrefix, "inbox-prefix", "", "the inbox prefix that the user connects with (_INBOX)")
	f.StringVar(&c.API.Domain, "js-domain", "", "JetStream domain")
	f.StringVar(&c.API.Prefix, "js-api-prefix", "", "subject prefix of JetStream's API")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.BoolVar(&asNSC, "nsc", false, "print flags for nsc add user and nsc edit user")
	cmd.MarkFlagsMutuallyExclusive("json", "nsc")
	cmd.MarkFlagsMutuallyExclusive("js-domain", "js-api-prefix")
	cmd.RegisterFlagCompletionFunc("role", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return up.Roles(), cobra.ShellCompDirectiveNoFileComp
	})
	return cmd
}

// readFunctions reads a folder of functions. One that cannot be read is an error:
// its permissions would be missing.
func readFunctions(c *up.PermissionsConfig, dir, place string) (err error) {
	found, err := up.ReadFolder(dir)
	if err != nil {
		return err
	}
	for _, f := range found {
		if f.Err != nil {
			return f.Err
		}
		if f.Manifest.RunsIn(c.Region) {
			c.Manifests = append(c.Manifests, f.Manifest)
		}
	}
	if c.Streams, err = manifests.LoadStreams(filepath.Join(dir, manifests.StreamsFile)); err != nil {
		return err
	}
	if place != "" {
		c.Place, err = manifests.LoadHost(place)
		return err
	}
	return nil
}

// printPermissions prints what goes into a user of the server's configuration.
func printPermissions(w io.Writer, p up.Permissions) error {
	lines := []string{"permissions {", "  publish {", "    allow: ["}
	for _, s := range p.Publish {
		lines = append(lines, fmt.Sprintf("      %q", s))
	}
	lines = append(lines, "    ]", "  }", "  subscribe {", "    allow: [")
	for _, s := range p.Subscribe {
		lines = append(lines, fmt.Sprintf("      %q", s))
	}
	lines = append(lines, "    ]", "  }")
	if p.Responses {
		lines = append(lines, `  allow_responses: {max: 1, expires: "1m"}`)
	}
	_, err := fmt.Fprintln(w, strings.Join(append(lines, "}"), "\n"))
	return err
}

func printNSC(w io.Writer, p up.Permissions) error {
	flags := []string{"--allow-pub '" + strings.Join(p.Publish, ",") + "'", "--allow-sub '" + strings.Join(p.Subscribe, ",") + "'"}
	if p.Responses {
		flags = append(flags, "--allow-pub-response=1", "--response-ttl 1m")
	}
	_, err := fmt.Fprintln(w, strings.Join(flags, " \\\n"))
	return err
}
