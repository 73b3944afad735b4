// Package status is what others see of a host: a NATS micro service for each
// function and one for the host itself.
package status

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime"
	"github.com/pelton-run/pelton/runtime/trigger"
)

// The subjects that are ours.
const (
	FunctionSubjects = "pelton.fn."
	ReadSubjects     = "pelton.ctl.read."
	AdminSubjects    = "pelton.ctl.admin."
)

// The states of a function, worst first.
const (
	StatePaused   = "paused"
	StateFailing  = "failing"
	StateDegraded = "degraded"
	StateStandby  = "standby" // another host runs it
	StateOK       = "ok"
)

var stateNames = map[runtime.State]string{
	runtime.Paused: StatePaused, runtime.Failing: StateFailing, runtime.Degraded: StateDegraded,
}

// Place names a host.
type Place struct {
	Host   string
	Region string
}

// Function is one function of this host, running or not.
type Function struct {
	Manifest *manifests.Manifest // nil when it could not be read
	Name     string
	File     string
	Running  *runtime.Function // nil when it could not be started
	Triggers []Trigger
	Problem  string // why it does not run
	Started  time.Time
}

// Trigger says how one trigger is.
type Trigger interface {
	State() trigger.State
}

// Figures is what a function tells of itself, as JSON. Field names are part of
// the interface: `nats micro info` prints them.
type Figures struct {
	Function string   `json:"function"`
	Host     string   `json:"host"`
	Region   string   `json:"region,omitempty"`
	Version  string   `json:"version,omitempty"`
	Digest   string   `json:"digest,omitempty"`
	State    string   `json:"state"`
	Reasons  []string `json:"reasons,omitempty"`

	Delivered   uint64 `json:"delivered"`
	Acked       uint64 `json:"acked"`
	Nak         uint64 `json:"nak"`
	Term        uint64 `json:"term"`
	DeadLetters uint64 `json:"dead_letters"`
	Redelivered uint64 `json:"redelivered"`
	InFlight    int64  `json:"in_flight"`
	Invocations uint64 `json:"invocations"`
	LogDropped  uint64 `json:"log_dropped,omitempty"`

	GuestMs   float64 `json:"guest_ms"`   // inside the guest, waits not counted
	Fuel      uint64  `json:"fuel"`       // of the metering, rounded up to refills
	HostCalls uint64  `json:"host_calls"` // of the guest

	Pending     uint64 `json:"pending"`     // of the durables, over all hosts
	Outstanding int    `json:"outstanding"` // likewise

	HandlerP50 float64 `json:"handler_p50_ms"`
	HandlerP99 float64 `json:"handler_p99_ms"`
	DoneP50    float64 `json:"done_p50_ms"` // from stored in the stream to acked
	DoneP99    float64 `json:"done_p99_ms"`

	LastError *runtime.LastError `json:"last_error,omitempty"`
	Triggers  []trigger.State    `json:"triggers"`
	Started   time.Time          `json:"started,omitzero"`
}

// Figures computes the function's figures from what is in memory; it asks
// nobody and does not wait.
func (f *Function) Figures(at Place) Figures {
	v := Figures{Function: f.Name, Host: at.Host, Region: at.Region, State: StateOK, Triggers: []trigger.State{}, Started: f.Started}
	if f.Manifest != nil {
		v.Version = f.Manifest.Version
	}
	if f.Problem != "" {
		v.State, v.Reasons = StateFailing, []string{f.Problem}
	}
	for _, t := range f.Triggers {
		s := t.State()
		v.Triggers = append(v.Triggers, s)
		v.Pending += s.Pending
		v.Outstanding += s.Outstanding
		switch s.State {
		case trigger.StateWaiting, trigger.StateFailed:
			v.State = StateFailing
			v.Reasons = append(v.Reasons, fmt.Sprintf("trigger %s is %s: %s", s.Name, s.State, s.Reason))
		case trigger.StateStandby:
			v.Reasons = append(v.Reasons, fmt.Sprintf("trigger %s stands by: %s", s.Name, s.Reason))
			if v.State == StateOK {
				v.State = StateStandby
			}
		}
	}
	if f.Running != nil {
		v.trouble(f.Running.Troubles())
		v.Digest = f.Running.Digest
		v.fill(f.Running.Stats)
	}
	return v
}

// trouble adds what the function says of itself; the worst comes first.
func (v *Figures) trouble(all []runtime.Trouble) {
	for i, t := range all {
		name := stateNames[t.State]
		if i == 0 && (v.State == StateOK || name == StatePaused) {
			v.State = name
		}
		v.Reasons = append(v.Reasons, name+": "+t.Reason)
	}
}

func (v *Figures) fill(s *runtime.Stats) {
	v.Delivered, v.Redelivered = s.Delivered.Load(), s.Redelivered.Load()
	v.Acked, v.Nak, v.Term, v.DeadLetters = s.Acked.Load(), s.Naked.Load(), s.Termed.Load(), s.DeadLetters.Load()
	v.InFlight, v.Invocations, v.LogDropped = s.InFlight(), s.Invocations.Load(), s.LogDropped.Load()
	v.GuestMs, v.Fuel, v.HostCalls = milliseconds(time.Duration(s.GuestTime.Load())), s.Fuel.Load(), s.HostCalls.Load()
	v.HandlerP50, v.HandlerP99 = milliseconds(s.Handler.Quantile(0.5)), milliseconds(s.Handler.Quantile(0.99))
	v.DoneP50, v.DoneP99 = milliseconds(s.Done.Quantile(0.5)), milliseconds(s.Done.Quantile(0.99))
	if e := s.LastError(); e.Text != "" {
		v.LastError = &e
	}
}

// milliseconds rounds to a hundredth: what is read at a glance.
func milliseconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}

// Register makes the function's micro service, with its health endpoint and an
// endpoint for each request subject. Stop the service to remove it.
func Register(nc *nats.Conn, f *Function, at Place, requests []*trigger.Endpoint) (micro.Service, error) {
	config := micro.Config{
		Name: f.Name, Version: "0.0.0",
		Metadata:     map[string]string{"host": at.Host, "region": at.Region, "pelton": "function"},
		StatsHandler: func(*micro.Endpoint) any { return f.Figures(at) },
	}
	if m := f.Manifest; m != nil {
		config.Version = m.Version
		describe(&config, m)
	}
	if f.Problem != "" {
		first, _, _ := strings.Cut(f.Problem, "\n")
		config.Description = "does not run: " + first
	}
	if f.Running != nil {
		config.Metadata["digest"] = f.Running.Digest
	}
	svc, err := micro.AddService(nc, config)
	if err != nil {
		return nil, fmt.Errorf("register micro service %s: %w", f.Name, err)
	}
	health := micro.HandlerFunc(func(r micro.Request) { respond(r, f.Figures(at)) })
	err = svc.AddEndpoint("health", health,
		micro.WithEndpointSubject(FunctionSubjects+f.Name+"."+at.Host+".health"),
		micro.WithEndpointQueueGroupDisabled())
	for _, e := range requests {
		if err == nil {
			err = svc.AddEndpoint(e.Name(), micro.HandlerFunc(e.Handle), micro.WithEndpointSubject(e.Subject()), micro.WithEndpointQueueGroup(f.Name))
		}
	}
	if err != nil {
		svc.Stop()
		return nil, fmt.Errorf("register endpoints of %s: %w", f.Name, err)
	}
	return svc, nil
}

// describe fills in what is known of a manifest. Metadata cannot change while
// the service lives.
func describe(config *micro.Config, m *manifests.Manifest) {
	config.Description = m.Description
	var kinds, streams, durables []string
	for _, t := range m.Triggers {
		kinds = append(kinds, t.Kind())
		if t.Stream != "" {
			streams = append(streams, t.Stream)
		}
		if t.DurableName != "" {
			durables = append(durables, t.DurableName)
		}
	}
	config.Metadata["trigger"] = strings.Join(kinds, ",")
	config.Metadata["stream"] = strings.Join(streams, ",")
	config.Metadata["durable"] = strings.Join(durables, ",")
}

func respond(r micro.Request, v any) {
	b, err := json.Marshal(v)
	if err != nil { // not of these types; then the asker should know
		r.Error("500", err.Error(), nil)
		return
	}
	r.Respond(b) // an asker that is gone needs no answer
}
