package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
)

// refusal is what the server does not permit a command's user.
type refusal struct{ error }

type refuseKey struct{}

// withRefusal makes a context that a connection can end with a refusal.
func withRefusal(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, refuse := context.WithCancelCause(ctx)
	return context.WithValue(ctx, refuseKey{}, refuse), refuse
}

// refusalOf returns what was refused, nil if nothing was.
func refusalOf(ctx context.Context) error {
	var r refusal
	if errors.As(context.Cause(ctx), &r) {
		return r
	}
	return nil
}

// onRefusal ends a context when the server refuses something; other errors of the
// connection are shown.
func onRefusal(ctx context.Context) nats.ErrHandler {
	return func(_ *nats.Conn, _ *nats.Subscription, err error) {
		refuse, ok := ctx.Value(refuseKey{}).(context.CancelCauseFunc)
		if !ok || !errors.Is(err, nats.ErrPermissionViolation) {
			fmt.Fprintln(os.Stderr, "pelton:", err)
			return
		}
		text, _, _ := strings.Cut(err.Error(), " on connection [")
		refuse(refusal{fmt.Errorf("%s; pelton permissions prints what each role needs", text)})
	}
}
