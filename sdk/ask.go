package sdk

import (
	"context"
	"time"
)

// Question is a request to a service of NATS, such as a micro service or another
// function.
type Question struct {
	Subject string
	Header  Header
	Data    []byte
	Timeout time.Duration // 0 for as long as the handler may run
}

// ServiceAnswer is what a service said.
type ServiceAnswer struct {
	Header Header
	Body   Buffer
}

// ServiceError is a micro service's way of saying that it could not.
type ServiceError struct{ Code, Text string }

func (e *ServiceError) Error() string { return "service error " + e.Code + ": " + e.Text }

// Ask sends a request to a service whose subject the manifest grants, and waits for
// its answer; what it asks for happens whether or not the delivery succeeds. The
// error is a [ServiceError] when the service says so, [ErrUnavailable] when nobody
// answers.
func Ask(ctx context.Context, q *Question) (*ServiceAnswer, error) {
	a, err := ask(ctx, q)
	if err != nil {
		return nil, err
	}
	if code := a.Header.Get("Nats-Service-Error-Code"); code != "" {
		return a, &ServiceError{Code: code, Text: a.Header.Get("Nats-Service-Error")}
	}
	return a, nil
}
