package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/pelton-run/pelton/host/image"
	"github.com/pelton-run/pelton/host/publish"
	"github.com/pelton-run/pelton/host/sqlite"
	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime/broker"
	"github.com/pelton-run/pelton/runtime/engine"
	"github.com/pelton-run/pelton/runtime/status"
	"github.com/pelton-run/pelton/runtime/trigger"
)

// flushTimeout bounds the wait for the last acks to be sent.
const flushTimeout = 2 * time.Second

// Host is one running host. Close must be called.
type Host struct {
	config    Config
	server    *broker.Server // nil when the host joined a cluster
	nc        *nats.Conn
	js        jetstream.JetStream
	engine    *engine.Engine
	resources *resources
	leases    *trigger.Leases
	attempts  *trigger.Attempts
	owners    *trigger.Owners
	lock      *os.File // of the data folder
	quiet     trigger.Quiet
	started   time.Time

	functions []*function
	shelf     shelf    // modules while functions are loaded
	tried     sync.Map // modules of which an instance was made
	services  []micro.Service
	leaseRun  context.CancelFunc
	background,
	running sync.WaitGroup
	soft, hard context.Context // take no more; end what runs
	softEnd,
	hardEnd context.CancelFunc
	closing sync.Once
	closed  error
}

// Start starts a host: its server or connection, and every function of the
// folder. A function that is wrong does not stop it; it is shown as failing.
func Start(ctx context.Context, config Config) (*Host, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	h := &Host{config: config, started: time.Now(), leases: trigger.NewLeases()}
	h.soft, h.softEnd = context.WithCancel(context.Background())
	h.hard, h.hardEnd = context.WithCancel(context.Background())
	candidates, err := ReadFolder(config.Folder)
	if err != nil {
		return nil, err
	}
	streams, err := manifests.LoadStreams(filepath.Join(config.Folder, manifests.StreamsFile))
	if err != nil { // functions whose streams exist run all the same
		config.Log.Error().Msg("no stream is created: " + err.Error())
		streams = &manifests.Streams{}
	}
	if h.lock, err = broker.LockFolder(config.Data); err != nil {
		return nil, err
	}
	settings := config.Engine
	settings.CacheDir = config.Cache
	if h.engine, err = engine.New(ctx, settings); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	warm := sync.OnceFunc(h.warm(ctx, candidates))
	defer warm()
	if err := h.connect(ctx); err != nil {
		warm()
		return nil, errors.Join(err, h.Close())
	}
	leaseCtx, stopLeases := context.WithCancel(context.Background())
	h.leaseRun = stopLeases
	h.background.Go(func() { h.leases.Run(leaseCtx) })
	h.background.Go(func() { h.ensureStreams(streams.Streams) })
	watch := &trigger.Watch{JS: h.js, Watched: streams.DeadLetter.Watch, Log: config.Log,
		Letters: &trigger.DeadLetters{JS: h.js, Config: manifests.DeadLetter{Subject: "dlq.{{subject}}"}, Host: config.Name, Region: config.Region}}
	h.background.Go(func() { watch.Run(h.soft) })
	h.load(ctx, candidates)
	warm()
	if err := h.register(); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	for _, f := range h.functions {
		f.start(h)
	}
	h.background.Go(h.tidy)
	return h, nil
}

// tidyAfter is how long after a start its memory is given back to the system:
// the first messages come first.
const tidyAfter = 5 * time.Second

// tidy gives back what compiling has left: many times more than what stays.
func (h *Host) tidy() {
	timer := time.NewTimer(tidyAfter)
	defer timer.Stop()
	select {
	case <-h.soft.Done():
	case <-timer.C:
		debug.FreeOSMemory()
	}
}

// connect starts the server if there is one, and makes everything that the
// functions share.
func (h *Host) connect(ctx context.Context) (err error) {
	log := h.config.Log
	options := append(broker.Options(h.config.Name, log), h.config.NATS...)
	if h.config.URL != "" {
		h.nc, err = nats.Connect(h.config.URL, options...)
	} else {
		if h.server, err = broker.Start(h.config.Listen, h.config.Store, h.config.Sync, log); err != nil {
			return err
		}
		h.nc, err = h.server.Connect(options...)
	}
	if err != nil {
		return fmt.Errorf("connect to nats: %w", err)
	}
	if !h.nc.IsConnected() {
		log.Warn().Str("url", h.config.URL).Msg("not connected to nats yet; trying again until it is there")
	}
	if h.js, err = h.config.API.JetStream(h.nc, jetstream.WithPublishAsyncTimeout(2*publish.AckTimeout)); err != nil {
		return fmt.Errorf("set up jetstream: %w", err)
	}
	h.attempts, h.owners = trigger.NewAttempts(h.js), trigger.NewOwners(h.js, h.config.Name)
	h.resources = &resources{config: &h.config, nc: h.nc, js: h.js, sender: publish.NewSender(h.js, h.noStream), gate: image.NewGate(), databases: map[string]*sqlite.Database{}}
	return nil
}

// noStream makes the stream of dead letters anew when somebody has removed it.
func (h *Host) noStream(ctx context.Context, subject string) error {
	if !strings.HasPrefix(subject, "dlq.") {
		return nil
	}
	return trigger.EnsureDeadLetterStream(ctx, h.js, subject, 1)
}

// ensureStreams creates the declared streams, again and again until the server
// lets it.
func (h *Host) ensureStreams(streams []manifests.Stream) {
	const every = 2 * time.Second
	said := ""
	for len(streams) > 0 && h.soft.Err() == nil {
		ctx, cancel := context.WithTimeout(h.soft, 10*time.Second)
		created, err := broker.EnsureStreams(ctx, h.js, streams)
		cancel()
		if len(created) > 0 {
			h.config.Log.Info().Strs("streams", created).Msg("created streams")
		}
		if err == nil {
			return
		}
		if err.Error() != said {
			said = err.Error()
			h.config.Log.Warn().Err(err).Msg("streams are not there yet; trying again")
		}
		select {
		case <-h.soft.Done():
		case <-time.After(every):
		}
	}
}

// register makes the micro services: the host's and one for each function.
func (h *Host) register() error {
	svc, err := status.RegisterHost(h.nc, h.place(), Version, status.Controls{Report: h.Report, Redrive: h.redrive})
	if err != nil {
		return err
	}
	h.services = append(h.services, svc)
	for _, f := range h.functions {
		svc, err := status.Register(h.nc, f.status, h.place(), f.endpoints)
		if err != nil {
			// A file whose name cannot be a service's is in the host's list all
			// the same.
			h.config.Log.Warn().Err(err).Str("file", f.status.File).Msg("the function has no micro service")
			continue
		}
		h.services = append(h.services, svc)
	}
	if h.nc.IsConnected() { // so that who asks right after the start gets an answer
		if err := h.nc.FlushTimeout(flushTimeout); err != nil {
			h.config.Log.Warn().Err(err).Msg("the micro services may answer a moment later")
		}
	}
	return nil
}

func (h *Host) place() status.Place {
	return status.Place{Host: h.config.Name, Region: h.config.Region}
}

// Name is the host's id.
func (h *Host) Name() string { return h.config.Name }

// Conn is the host's connection.
func (h *Host) Conn() *nats.Conn { return h.nc }

// JetStream is the host's.
func (h *Host) JetStream() jetstream.JetStream { return h.js }

// URL is where clients connect.
func (h *Host) URL() string {
	if h.server != nil {
		return h.server.URL()
	}
	return h.config.URL
}

// Report tells of the host and its functions.
func (h *Host) Report() status.HostReport {
	r := status.HostReport{Host: h.config.Name, Region: h.config.Region, Version: Version, Started: h.started}
	if h.server != nil {
		r.Sync = h.config.Sync.String()
	}
	for _, f := range h.functions {
		r.Functions = append(r.Functions, f.status.Figures(h.place()))
	}
	sort.Slice(r.Functions, func(i, j int) bool { return r.Functions[i].Function < r.Functions[j].Function })
	return r
}

// redrive hands a dead letter to one of the host's functions.
func (h *Host) redrive(ask status.Redrive) error {
	for _, f := range h.functions {
		if f.status.Name != ask.Function || f.status.Running == nil {
			continue
		}
		if h.soft.Err() != nil {
			return errors.New("the host is stopping")
		}
		for _, c := range f.consumers {
			if s := c.State(); s.State == trigger.StateStandby {
				return fmt.Errorf("function %s stands by on host %s: %s", ask.Function, h.config.Name, s.Reason)
			}
		}
		h.running.Add(1)
		defer h.running.Done()
		letters, err := trigger.OpenLetters(h.hard, h.js, ask.Stream)
		if err != nil {
			return err
		}
		return letters.RedriveTo(h.hard, ask.Sequence, ask.Again, f.status.Manifest, f.status.Running, &h.quiet)
	}
	return fmt.Errorf("function %s does not run on host %s", ask.Function, h.config.Name)
}

// Close stops the host: it takes no more messages, lets handlers finish within
// the grace period, gives back what was not started, sends what is buffered,
// and closes its files. Closing it again returns the same.
func (h *Host) Close() error {
	h.closing.Do(func() { h.closed = h.close() })
	return h.closed
}

func (h *Host) close() error {
	h.softEnd()
	for _, s := range h.services {
		s.Stop() // it drains its subscriptions; there is nothing to add to an error
	}
	done := make(chan struct{})
	go func() { h.running.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(h.config.Grace):
		h.config.Log.Warn().Dur("grace", h.config.Grace).Msg("handlers did not finish in time; ending them")
		h.hardEnd()
		<-done
	}
	h.hardEnd()
	if h.leaseRun != nil {
		h.leaseRun()
	}
	h.background.Wait()
	return h.release()
}

// release closes everything that the functions used.
func (h *Host) release() error {
	var errs []error
	ctx := context.Background()
	for _, f := range h.functions {
		errs = append(errs, f.close(ctx))
	}
	if h.engine != nil {
		errs = append(errs, h.engine.Close(ctx))
	}
	if h.resources != nil {
		errs = append(errs, h.resources.close())
	}
	if h.nc != nil {
		// Without a server there is nobody to tell; what was not settled comes
		// again.
		if err := h.nc.FlushTimeout(flushTimeout); err != nil && h.nc.IsConnected() {
			errs = append(errs, fmt.Errorf("send the last acks: %w", err))
		}
		h.nc.Close()
	}
	if h.server != nil {
		errs = append(errs, h.server.Close())
	}
	if h.lock != nil {
		errs = append(errs, h.lock.Close())
	}
	return errors.Join(errs...)
}
