package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
)

// connection is the flags of a connection to NATS, and what they mean.
type connection struct {
	url, creds, nkey, user, password, tlsCA, tlsCert, tlsKey string
}

func (c *connection) flags(cmd *cobra.Command, url string) {
	f := cmd.Flags()
	f.StringVar(&c.url, "nats", url, "URL of a NATS server or cluster")
	f.StringVar(&c.creds, "creds", "", "file with a user's credentials")
	f.StringVar(&c.nkey, "nkey", "", "file with an nkey seed")
	f.StringVar(&c.user, "user", "", "user name")
	f.StringVar(&c.password, "password", "", "password")
	f.StringVar(&c.tlsCA, "tlsca", "", "file with the CA of the server's certificate")
	f.StringVar(&c.tlsCert, "tlscert", "", "file with the client's certificate")
	f.StringVar(&c.tlsKey, "tlskey", "", "file with the key of the client's certificate")
}

func (c *connection) options() ([]nats.Option, error) {
	var o []nats.Option
	if c.creds != "" {
		o = append(o, nats.UserCredentials(c.creds))
	}
	if c.nkey != "" {
		opt, err := nats.NkeyOptionFromSeed(c.nkey)
		if err != nil {
			return nil, fmt.Errorf("read nkey: %w", err)
		}
		o = append(o, opt)
	}
	if c.user != "" {
		o = append(o, nats.UserInfo(c.user, c.password))
	}
	if c.tlsCA != "" {
		o = append(o, nats.RootCAs(c.tlsCA))
	}
	if c.tlsCert != "" || c.tlsKey != "" {
		o = append(o, nats.ClientCert(c.tlsCert, c.tlsKey))
	}
	return o, nil
}

// askTimeout bounds what a command that asks something may take.
const askTimeout = 10 * time.Second

// ask connects for a command, runs it under a bound, and disconnects.
func (c *connection) ask(cmd *cobra.Command, do func(ctx context.Context, nc *nats.Conn) error) error {
	nc, err := c.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), askTimeout)
	defer cancel()
	return do(ctx, nc)
}

// connect connects for a command that asks something and ends.
func (c *connection) connect() (*nats.Conn, error) {
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(c.url, append(o, nats.Name("pelton"), nats.Timeout(3*time.Second))...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w; is it running? name another with --nats", c.url, err)
	}
	return nc, nil
}
