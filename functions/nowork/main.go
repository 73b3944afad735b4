// Command nowork acks every message: what is left is the cost of delivery.
package main

import (
	"context"

	"github.com/pelton-run/pelton/sdk"
)

func init() { sdk.Handle(func(context.Context, *sdk.Msg) error { return nil }) }

func main() {} // a reactor is called, not run
