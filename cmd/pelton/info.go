package main

import (
	"context"
	"fmt"
	"io"
	"sort"
	"strings"
	"text/tabwriter"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/pelton-run/pelton/runtime/status"
)

// durability is what can be read of how long the broker keeps what it acknowledged.
type durability struct {
	Server  string       `json:"server"`
	Version string       `json:"version"`
	Cluster string       `json:"cluster,omitempty"`
	Hosts   []hostSync   `json:"hosts"`
	Streams []streamKept `json:"streams"`
}

type hostSync struct {
	Host   string `json:"host"`
	Region string `json:"region,omitempty"`
	Sync   string `json:"sync,omitempty"` // of its embedded server
}

type streamKept struct {
	Stream   string   `json:"stream"`
	Storage  string   `json:"storage"`
	Replicas int      `json:"replicas"`
	Warnings []string `json:"warnings,omitempty"`
}

func infoCommand() *cobra.Command {
	var conn connection
	var asJSON bool
	cmd := &cobra.Command{
		Use: "info", Short: "Show the hosts, and how well the broker keeps what it has acknowledged",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return conn.ask(cmd, func(ctx context.Context, nc *nats.Conn) error {
				js, err := conn.jetStream(nc)
				if err != nil {
					return err
				}
				d, err := readDurability(ctx, js)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), d)
				}
				return printDurability(cmd.OutOrStdout(), d)
			})
		},
	}
	conn.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func readDurability(ctx context.Context, js jetstream.JetStream) (*durability, error) {
	nc := js.Conn()
	d := &durability{Server: nc.ConnectedServerName(), Version: nc.ConnectedServerVersion(), Cluster: nc.ConnectedClusterName(), Hosts: []hostSync{}, Streams: []streamKept{}}
	hosts, err := status.ListHosts(ctx, nc, quiet)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, h := range hosts {
		d.Hosts = append(d.Hosts, hostSync{h.Host, h.Region, h.Sync})
		for _, f := range h.Functions {
			for _, t := range f.Triggers {
				if t.Stream != "" {
					names[t.Stream] = true
				}
			}
		}
	}
	for name := range names {
		s, err := js.Stream(ctx, name)
		if err != nil {
			d.Streams = append(d.Streams, streamKept{Stream: name, Warnings: []string{err.Error()}})
			continue
		}
		d.Streams = append(d.Streams, kept(s.CachedInfo().Config))
	}
	sort.Slice(d.Streams, func(i, j int) bool { return d.Streams[i].Stream < d.Streams[j].Stream })
	return d, nil
}

func kept(c jetstream.StreamConfig) streamKept {
	k := streamKept{Stream: c.Name, Storage: strings.ToLower(c.Storage.String()), Replicas: c.Replicas}
	warn := func(when bool, text string) {
		if when {
			k.Warnings = append(k.Warnings, text)
		}
	}
	warn(c.Storage == jetstream.MemoryStorage, "in memory: gone when its servers stop")
	warn(c.Storage == jetstream.FileStorage && c.Replicas == 1, "one replica: what came since the server's last sync is lost with its machine's power")
	warn(c.NoAck, "not acknowledged: publishers do not know what is stored")
	return k
}

func printDurability(w io.Writer, d *durability) error {
	fmt.Fprintf(w, "server %s, nats-server %s", d.Server, d.Version)
	if d.Cluster != "" {
		fmt.Fprintf(w, ", cluster %s", d.Cluster)
	}
	fmt.Fprint(w, "\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "HOST\tREGION\tSYNC OF ITS SERVER")
	for _, h := range d.Hosts {
		sync := h.Sync
		if sync == "" {
			sync = "an external server; its sync_interval cannot be read, and is two minutes unless it is set"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", h.Host, dash(h.Region), sync)
	}
	fmt.Fprintln(t, "\t\t\nSTREAM\tSTORAGE\tREPLICAS")
	for _, s := range d.Streams {
		fmt.Fprintf(t, "%s\t%s\t%d\n", s.Stream, s.Storage, s.Replicas)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, s := range d.Streams {
		for _, text := range s.Warnings {
			fmt.Fprintf(w, "\n%s: %s", s.Stream, text)
		}
	}
	fmt.Fprintln(w)
	return nil
}
