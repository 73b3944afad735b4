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

// serviceName is the micro service of every host.
const serviceName = "pelton"

// HostReport is what a host tells of itself and its functions.
type HostReport struct {
	Host      string    `json:"host"`
	Region    string    `json:"region,omitempty"`
	Version   string    `json:"version"`
	Started   time.Time `json:"started"`
	Functions []Figures `json:"functions"`
}

// RegisterHost makes the host's micro service with the endpoint that
// [ListHosts] asks. report is called for every question.
func RegisterHost(nc *nats.Conn, at Place, version string, report func() HostReport) (micro.Service, error) {
	svc, err := micro.AddService(nc, micro.Config{
		Name: serviceName, Version: version, Description: "A host of Pelton functions.",
		Metadata: map[string]string{"host": at.Host, "region": at.Region, "pelton": "host"},
	})
	if err != nil {
		return nil, fmt.Errorf("register micro service %s: %w", serviceName, err)
	}
	err = svc.AddEndpoint("list", micro.HandlerFunc(func(r micro.Request) { respond(r, report()) }),
		micro.WithEndpointSubject(readSubjects+at.Host+".list"), micro.WithEndpointQueueGroupDisabled())
	if err != nil {
		svc.Stop()
		return nil, fmt.Errorf("register endpoint list: %w", err)
	}
	return svc, nil
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
		msg, err := nc.RequestWithContext(ctx, readSubjects+h+".list", nil)
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
	if err := nc.PublishRequest("$SRV.PING."+serviceName, inbox, nil); err != nil {
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
