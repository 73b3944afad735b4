package broker

import (
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
)

// API is where JetStream takes requests: a domain, or the prefix under which another
// account's is imported. The zero value is the connection's own account.
type API struct{ Domain, Prefix string }

// JetStream makes the JetStream of a connection.
func (a API) JetStream(nc *nats.Conn, options ...jetstream.JetStreamOpt) (jetstream.JetStream, error) {
	switch {
	case a.Domain != "":
		return jetstream.NewWithDomain(nc, a.Domain, options...)
	case a.Prefix != "":
		return jetstream.NewWithAPIPrefix(nc, a.Prefix, options...)
	}
	return jetstream.New(nc, options...)
}

// Options are the connection options of a host: it waits for a server that is
// not there yet, and reconnects for ever.
func Options(name string, log zerolog.Logger) []nats.Option {
	return []nats.Option{
		nats.Name("pelton " + name),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(500 * time.Millisecond),
		nats.ReconnectJitter(200*time.Millisecond, time.Second),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn().Err(err).Msg("disconnected from nats; reconnecting")
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info().Str("url", nc.ConnectedUrlRedacted()).Msg("connected to nats")
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			event := log.Warn().Err(err)
			if sub != nil {
				event.Str("subject", sub.Subject)
			}
			event.Msg("nats connection")
		}),
	}
}
