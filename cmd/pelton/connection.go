package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/jsm.go/natscontext"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/pelton-run/pelton/runtime/broker"
)

// connection is the flags of a connection to NATS: those of the nats CLI, with its
// contexts and its environment variables.
type connection struct {
	url, context, creds, nkey, user, password, token string
	tlsCA, tlsCert, tlsKey, inboxPrefix              string
	tlsFirst                                         bool
	api                                              broker.API
}

// flags adds the flags to a command. A flag that is not given is taken from the
// environment.
func (c *connection) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	text := func(to *string, flag, env, usage string) {
		f.StringVar(to, flag, os.Getenv(env), usage+" (or "+env+")")
		f.Lookup(flag).DefValue = "" // a password of the environment is not for the help
	}
	text(&c.url, "nats", "NATS_URL", "URL of a NATS server or cluster, several with commas")
	text(&c.context, "context", "NATS_CONTEXT", "a context of the nats CLI; other flags go before what it says")
	text(&c.creds, "creds", "NATS_CREDS", "file with a user's credentials")
	text(&c.nkey, "nkey", "NATS_NKEY", "file with an nkey seed")
	text(&c.user, "user", "NATS_USER", "user name")
	text(&c.password, "password", "NATS_PASSWORD", "password")
	text(&c.token, "token", "NATS_TOKEN", "token")
	text(&c.tlsCA, "tlsca", "NATS_CA", "file with the CA of the server's certificate")
	text(&c.tlsCert, "tlscert", "NATS_CERT", "file with the client's certificate")
	text(&c.tlsKey, "tlskey", "NATS_KEY", "file with the key of the client's certificate")
	f.BoolVar(&c.tlsFirst, "tlsfirst", false, "begin with TLS, before the server says anything")
	text(&c.inboxPrefix, "inbox-prefix", "NATS_INBOX_PREFIX", "prefix of the subjects that answers come to")
	f.StringVar(&c.api.Domain, "js-domain", "", "JetStream domain, such as that of a leaf node")
	f.StringVar(&c.api.Prefix, "js-api-prefix", "", "subject prefix of JetStream's API, of another account")
	cmd.MarkFlagsMutuallyExclusive("js-domain", "js-api-prefix")
	cmd.RegisterFlagCompletionFunc("context", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return natscontext.KnownContexts(), cobra.ShellCompDirectiveNoFileComp
	})
}

// given reports whether a server is named, rather than the one on this machine.
func (c *connection) given() bool { return c.url != "" || c.context != "" }

// resolve puts the context and the flags together: where to connect to, and how.
func (c *connection) resolve() (url string, options []nats.Option, err error) {
	flags := []natscontext.Option{
		natscontext.WithServerURL(c.url), natscontext.WithCreds(c.creds), natscontext.WithNKey(c.nkey),
		natscontext.WithUser(c.user), natscontext.WithPassword(c.password), natscontext.WithToken(c.token),
		natscontext.WithCA(c.tlsCA), natscontext.WithCertificate(c.tlsCert), natscontext.WithKey(c.tlsKey),
		natscontext.WithInboxPrefix(c.inboxPrefix),
	}
	if c.tlsFirst {
		flags = append(flags, natscontext.WithTLSHandshakeFirst())
	}
	resolved, err := natscontext.New(c.context, c.context != "", flags...)
	if err != nil {
		return "", nil, fmt.Errorf("read context %s: %w; nats context ls lists them", c.context, err)
	}
	if options, err = resolved.NATSOptions(); err != nil {
		return "", nil, fmt.Errorf("read the connection's options: %w", err)
	}
	if c.api == (broker.API{}) {
		c.api = broker.API{Domain: resolved.JSDomain(), Prefix: resolved.JSAPIPrefix()}
	}
	return resolved.ServerURL(), options, nil
}

// askTimeout bounds what a command that asks something may take.
const askTimeout = 10 * time.Second

// ask connects for a command, runs it under a bound, and disconnects.
func (c *connection) ask(cmd *cobra.Command, do func(ctx context.Context, nc *nats.Conn) error) error {
	nc, err := c.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), askTimeout)
	defer cancel()
	return do(ctx, nc)
}

// connect connects for a command that asks something and ends. What the server does
// not permit would never be answered: it ends the command.
func (c *connection) connect(ctx context.Context) (*nats.Conn, error) {
	url, options, err := c.resolve()
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(url, append(options, nats.Name("pelton"), nats.Timeout(3*time.Second), nats.ErrorHandler(onRefusal(ctx)))...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w; is it running? name another with --nats or --context", url, err)
	}
	return nc, nil
}

// jetStream is the connection's, once it has been made.
func (c *connection) jetStream(nc *nats.Conn) (jetstream.JetStream, error) {
	return c.api.JetStream(nc)
}
