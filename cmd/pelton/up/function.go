package up

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/pelton-run/pelton/manifests"
	domain "github.com/pelton-run/pelton/runtime"
	"github.com/pelton-run/pelton/runtime/engine"
	"github.com/pelton-run/pelton/runtime/status"
	"github.com/pelton-run/pelton/runtime/trigger"
)

// function is one function of the host with everything that it holds.
type function struct {
	status    *status.Function
	module    *engine.Module
	pool      *engine.Pool
	sole      *trigger.Sole // nil unless it runs on one host at a time
	consumers []*trigger.Consumer
	endpoints []*trigger.Endpoint
}

// load prepares all candidates, several at once, as many as there are cores:
// compiling is the work. One that fails is kept with its problem.
func (h *Host) load(ctx context.Context, candidates []Candidate) {
	loaded := make([]*function, len(candidates))
	work := make(chan int)
	var group sync.WaitGroup
	for range min(len(candidates), runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			for i := range work {
				loaded[i] = h.loadOne(ctx, &candidates[i])
			}
		})
	}
	for i := range candidates {
		work <- i
	}
	close(work)
	group.Wait()
	for _, f := range loaded {
		if f != nil {
			h.functions = append(h.functions, f)
		}
	}
}

// loadOne prepares one function; nil when its placement is elsewhere.
func (h *Host) loadOne(ctx context.Context, c *Candidate) *function {
	f := &function{status: &status.Function{Name: c.Name(), File: c.File}}
	err := c.Err
	if err == nil {
		if !c.Manifest.RunsIn(h.config.Region) {
			return nil
		}
		f.status.Manifest = c.Manifest.On(h.config.Region, h.config.Name)
		err = f.prepare(ctx, h)
	}
	if err != nil {
		f.status.Problem = err.Error()
		h.config.Log.Error().Str("function", c.Name()).Str("file", c.File).Msg("function does not run: " + err.Error())
		return f
	}
	h.config.Log.Info().Str("function", c.Name()).Str("version", f.status.Manifest.Version).Str("digest", f.module.Digest()).Msg("function is ready")
	return f
}

// prepare compiles the module, binds the grants, makes the first instance and
// the triggers. Nothing runs yet.
func (f *function) prepare(ctx context.Context, h *Host) (err error) {
	m := f.status.Manifest
	if err := Unsupported(m); err != nil {
		return fmt.Errorf("%s: %w", f.status.File, err)
	}
	wasm, err := h.shelf.read(f.status.File, m)
	if err != nil {
		return err
	}
	if f.module, err = h.engine.Compile(ctx, wasm, m); err != nil {
		return fmt.Errorf("%s: %w", ModulePath(f.status.File, m), err)
	}
	grants, err := h.resources.bind(ctx, m, filepath.Dir(f.status.File))
	if err != nil {
		return fmt.Errorf("%s: %w", f.status.File, err)
	}
	if f.pool, err = engine.NewPool(f.module, settings(m)); err == nil && h.untried(f.module.Digest(), m) {
		err = f.pool.Try(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", ModulePath(f.status.File, m), err)
	}
	if m.Placement.Hosts == "one" {
		f.sole = h.owners.NewSole(m.Name)
		grants.Fence = f.sole.Fence
	}
	f.status.Running = domain.New(m, f.module.Digest(), f.pool, grants, h.config.Log)
	f.status.Started = time.Now()
	f.makeTriggers(h)
	return nil
}

// untried reports whether no function has shown yet that an instance of a module
// can be made, with the memory that this one has. Functions that share a module
// make theirs when they are called.
func (h *Host) untried(digest string, m *manifests.Manifest) bool {
	_, tried := h.tried.LoadOrStore(fmt.Sprintf("%s %s %s", digest, m.Limits.Memory, m.Isolation), true)
	return !tried
}

// Unsupported refuses what the manifest format has and this version does not
// act on yet: to ignore it quietly would break a promise.
func Unsupported(m *manifests.Manifest) error {
	var errs []error
	if m.OnDownstreamLag != nil {
		errs = append(errs, errors.New("on_downstream_lag: is not acted on by this version; remove it"))
	}
	if m.Placement.Hosts == "one" && m.WriteDatabase() != "" {
		errs = append(errs, errors.New("placement.hosts: one is for functions without a database of their own: state runs where it lives, on one host anyway; use all"))
	}
	if m.Placement.Hosts == "one" && slices.ContainsFunc(m.Triggers, func(t manifests.Trigger) bool { return t.Kind() == "request" }) {
		errs = append(errs, errors.New("placement.hosts: one is for streams and schedules; a request is answered by whichever host it reaches: use all, or a function of its own for the requests"))
	}
	return errors.Join(errs...)
}

// settings says how the manifest's instances run. Deliveries share an instance
// when each is an invocation of its own and nothing of the function is a
// transaction.
func settings(m *manifests.Manifest) engine.Settings {
	most := m.Instances.Max
	if most == 0 {
		most = runtime.GOMAXPROCS(0)
	}
	return engine.Settings{
		Max: min(most, m.Concurrency), Memory: int64(m.Limits.Memory), Env: m.Config,
		Fresh: m.Isolation == "message", Shared: m.WriteDatabase() == "" && single(m),
	}
}

// single reports whether every trigger brings one delivery at a time.
func single(m *manifests.Manifest) bool {
	for _, t := range m.Triggers {
		if t.Batch.Max > 1 {
			return false
		}
	}
	return true
}

func (f *function) makeTriggers(h *Host) {
	m := f.status.Manifest
	atOnce := settings(m).Max // an invocation holds an instance
	if f.pool.Shared() {
		atOnce = m.Concurrency
	}
	letters := &trigger.DeadLetters{JS: h.js, Config: m.DeadLetter, Function: m.Name, Host: h.config.Name, Region: h.config.Region}
	for _, t := range m.Triggers {
		if t.Kind() == "request" {
			e := trigger.NewEndpoint(h.hard, t, atOnce, f.status.Running, &h.quiet)
			f.endpoints = append(f.endpoints, e)
			f.status.Triggers = append(f.status.Triggers, e)
			continue
		}
		config := trigger.ConsumerConfig{
			JS: h.js, Function: m.Name, Trigger: t, Concurrency: atOnce, Dispatcher: f.status.Running,
			DeadLetters: letters, Attempts: h.attempts, Leases: h.leases, Quiet: &h.quiet,
			Owners: h.owners, Sole: f.sole,
			Log: h.config.Log.With().Str("function", m.Name).Logger(),
		}
		if t.Kind() == "schedule" {
			config.Trigger, config.Prepare = trigger.ScheduleTrigger(t), trigger.PrepareSchedule(h.js, t)
		}
		config.Marks = filepath.Join(h.config.Data, "marks", m.Name, config.Trigger.Stream+"."+t.DurableName)
		c := trigger.NewConsumer(config)
		f.consumers = append(f.consumers, c)
		f.status.Triggers = append(f.status.Triggers, c)
	}
}

// start runs the function's triggers until the host stops.
func (f *function) start(h *Host) {
	if f.status.Running != nil {
		h.background.Go(func() { f.status.Running.Run(h.hard) })
	}
	if f.sole != nil {
		h.background.Go(func() { f.sole.Run(h.hard) })
	}
	for _, c := range f.consumers {
		h.running.Go(func() { c.Run(h.soft, h.hard) })
	}
	for _, e := range f.endpoints {
		h.running.Go(func() { e.Run(h.soft) })
	}
}

func (f *function) close(ctx context.Context) error {
	var errs []error
	if f.pool != nil {
		errs = append(errs, f.pool.Close())
	}
	if f.module != nil {
		errs = append(errs, f.module.Close(ctx))
	}
	return errors.Join(errs...)
}
