// Command compute does the work that its messages name.
package main

import (
	"context"
	"errors"

	"github.com/pelton-run/pelton/functions/compute/work"
	"github.com/pelton-run/pelton/sdk"
)

func init() { sdk.Handle(handle) }

func main() {} // a reactor is called, not run

func handle(_ context.Context, msg *sdk.Msg) error {
	if work.Do(string(msg.Data())) < 0 {
		return sdk.Term(errors.New("unknown work"))
	}
	return nil
}
