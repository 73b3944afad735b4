// Command relay publishes relayed.<n> for each message <n>, outside of any
// transaction, so that tests can tell how often a message had an effect.
package main

import (
	"context"
	"strings"

	"github.com/pelton-run/pelton/sdk"
)

func init() { sdk.Handle(relay) }

func main() {} // a reactor is called, not run

func relay(ctx context.Context, msg *sdk.Msg) error {
	n := strings.TrimPrefix(string(msg.Data()), "bad ")
	return sdk.Publish(ctx, "relayed."+n, msg.Data())
}
