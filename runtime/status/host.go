package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// ServiceName is the micro service of every host.
const ServiceName = "pelton"

// HostReport is what a host tells of itself and its functions.
type HostReport struct {
	Host      string    `json:"host"`
	Region    string    `json:"region,omitempty"`
	Version   string    `json:"version"`
	Started   time.Time `json:"started"`
	Sync      string    `json:"sync,omitempty"` // of its embedded server
	Functions []Figures `json:"functions"`
}

// Redrive asks a host to hand a dead letter to a function.
type Redrive struct {
	Function string `json:"function"`
	Stream   string `json:"stream"`   // of dead letters
	Sequence uint64 `json:"sequence"` // there
	Again    bool   `json:"again,omitempty"`
}

// Controls is what a host does when it is asked to.
type Controls struct {
	Report  func() HostReport
	Redrive func(Redrive) error // may take as long as a handler
}

// RegisterHost makes the host's micro service with the endpoints that [ListHosts]
// and [AskRedrive] ask.
func RegisterHost(nc *nats.Conn, at Place, version string, c Controls) (micro.Service, error) {
	svc, err := micro.AddService(nc, micro.Config{
		Name: ServiceName, Version: version, Description: "A host of Pelton functions.",
		Metadata: map[string]string{"host": at.Host, "region": at.Region, "pelton": "host"},
	})
	if err != nil {
		return nil, fmt.Errorf("register micro service %s: %w", ServiceName, err)
	}
	err = svc.AddEndpoint("list", micro.HandlerFunc(func(r micro.Request) { respond(r, c.Report()) }),
		micro.WithEndpointSubject(ReadSubjects+at.Host+".list"), micro.WithEndpointQueueGroupDisabled())
	if err == nil {
		err = svc.AddEndpoint("redrive", micro.HandlerFunc(func(r micro.Request) { go redrive(r, c.Redrive) }),
			micro.WithEndpointSubject(AdminSubjects+at.Host+".redrive"), micro.WithEndpointQueueGroupDisabled())
	}
	if err != nil {
		svc.Stop()
		return nil, fmt.Errorf("register endpoints of the host: %w", err)
	}
	return svc, nil
}

// answer is what a control endpoint says: an error, or nothing.
type answer struct {
	Error string `json:"error,omitempty"`
}

func redrive(r micro.Request, do func(Redrive) error) {
	var ask Redrive
	err := json.Unmarshal(r.Data(), &ask)
	if err == nil {
		err = do(ask)
	}
	var a answer
	if err != nil {
		a.Error = err.Error()
	}
	respond(r, a)
}

// AskRedrive has a host hand a dead letter to a function, and waits for what
// becomes of it.
func AskRedrive(ctx context.Context, nc *nats.Conn, host string, ask Redrive) error {
	b, err := json.Marshal(ask)
	if err != nil {
		return fmt.Errorf("encode the question: %w", err)
	}
	msg, err := nc.RequestWithContext(ctx, AdminSubjects+host+".redrive", b)
	if err != nil {
		return fmt.Errorf("ask host %s: %w", host, err)
	}
	var a answer
	if err := json.Unmarshal(msg.Data, &a); err != nil {
		return fmt.Errorf("read the answer of host %s: %w", host, err)
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	return nil
}

// ListHosts asks every host for its report. It finds the hosts by a micro PING
// and waits until no answer has come for quiet.
func ListHosts(ctx context.Context, nc *nats.Conn, quiet time.Duration) ([]HostReport, error) {
	hosts, err := findHosts(ctx, nc, quiet)
	if err != nil {
		return nil, err
	}
	reports := make([]HostReport, 0, len(hosts))
	for _, h := range hosts {
		msg, err := nc.RequestWithContext(ctx, ReadSubjects+h+".list", nil)
		if err != nil {
			return nil, fmt.Errorf("ask host %s: %w", h, err)
		}
		var r HostReport
		if err := json.Unmarshal(msg.Data, &r); err != nil {
			return nil, fmt.Errorf("read the report of host %s: %w", h, err)
		}
		reports = append(reports, r)
	}
	sort.Slice(reports, func(i, j int) bool { return reports[i].Host < reports[j].Host })
	return reports, nil
}

func findHosts(ctx context.Context, nc *nats.Conn, quiet time.Duration) ([]string, error) {
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	defer sub.Unsubscribe()
	if err := nc.PublishRequest("$SRV.PING."+ServiceName, inbox, nil); err != nil {
		return nil, fmt.Errorf("ask for hosts: %w", err)
	}
	var hosts []string
	for ctx.Err() == nil {
		msg, err := sub.NextMsg(quiet)
		if errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("wait for hosts: %w", err)
		}
		var ping micro.Ping
		if json.Unmarshal(msg.Data, &ping) != nil {
			continue // not a host of ours
		}
		if h := ping.Metadata["host"]; h != "" && !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	return hosts, nil
}
