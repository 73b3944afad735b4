package broker

import (
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
)

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
