package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pelton-run/pelton/cmd/pelton/up"
	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime/broker"
)

func upCommand() *cobra.Command {
	var config up.Config
	var conn connection
	var level, secrets, sync, place string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a host on a folder of functions",
		Long: `Run a host on a folder of functions, with an embedded NATS server unless --nats
or --context, or NATS_URL or NATS_CONTEXT in the environment, names one. It runs
until it is interrupted; then it takes no more messages, lets handlers finish, and
gives back what was not started.`,
		Example: "  pelton up --dir functions\n  pelton up --nats nats://nats.example.com --creds host.creds --region eu\n  pelton up --context production --js-domain hub",
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := logger(level)
			if err != nil {
				return err
			}
			config.Log = log
			if conn.given() {
				if config.URL, config.NATS, err = conn.resolve(); err != nil {
					return err
				}
				config.API = conn.api
			}
			if config.Sync, err = broker.ParseSync(sync); err != nil {
				return usageError{fmt.Errorf("--sync: %w", err)}
			}
			if config.Place, err = manifests.LoadHost(place); err != nil {
				return err
			}
			if secrets != "" {
				config.Secrets = up.FileSecrets(secrets)
			}
			h, err := up.Start(cmd.Context(), config)
			if err != nil {
				return err
			}
			log.Info().Str("host", h.Name()).Str("url", h.URL()).Msg("up; stop with Ctrl-C")
			<-cmd.Context().Done()
			log.Info().Msg("stopping; once more to stop at once")
			return h.Close()
		},
	}
	f := cmd.Flags()
	f.StringVar(&config.Folder, "dir", "functions", "folder with the functions")
	f.StringVar(&config.Data, "data", "pelton-data", "folder for databases, blobs and caches")
	f.StringVar(&config.Store, "store", "", "folder for the embedded server's streams (default <data>/nats)")
	f.StringVar(&config.Cache, "cache", "", "folder for compiled code; whoever can write there owns the host (default <data>/cache)")
	f.StringVar(&config.Name, "name", "", "the host's id (default: made once and kept in <data>/host-id)")
	f.StringVar(&config.Region, "region", "", "the host's region, {{region}} in manifests")
	f.StringVar(&config.Listen, "listen", "127.0.0.1:4222", "address of the embedded server")
	f.StringVar(&sync, "sync", broker.DefaultSync.String(), "how often the embedded server writes to the disk: always, or an interval; what came since is lost when the machine loses power")
	f.DurationVar(&config.Grace, "grace", up.DefaultGrace, "how long handlers may still run when the host stops")
	f.StringVar(&place, "config", "", "file that says what databases, blob stores and networks are on this host, such as pelton.yaml")
	f.StringVar(&secrets, "secrets", "", "folder with one file a secret (default: PELTON_SECRET_<NAME> in the environment)")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	conn.flags(cmd)
	return cmd
}

// quiet is how long a command waits for one more host to answer.
const quiet = 300 * time.Millisecond
