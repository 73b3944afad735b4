// Command asks asks services, for the tests of requests: a message is a subject and
// what to ask there.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pelton-run/pelton/sdk"
)

func init() { sdk.Handle(handle) }

func main() {} // a reactor is called, not run

func handle(ctx context.Context, msg *sdk.Msg) error {
	subject, text, _ := strings.Cut(string(msg.Data()), " ")
	a, err := sdk.Ask(ctx, &sdk.Question{Subject: subject, Header: sdk.Header{"X-From": {"guest"}}, Data: []byte(text), Timeout: 500 * time.Millisecond})
	var said *sdk.ServiceError
	var refused *sdk.HostError
	switch {
	case errors.As(err, &said):
		return msg.Respond([]byte("said " + said.Error()))
	case errors.As(err, &refused):
		return sdk.Term(fmt.Errorf("errno %d: %w", refused.Errno, err))
	case err != nil:
		return err
	}
	b, err := a.Body.Bytes()
	if err != nil {
		return err
	}
	return msg.Respond(b)
}
