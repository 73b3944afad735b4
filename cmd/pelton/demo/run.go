package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/pelton-run/pelton/cmd/pelton/up"
	"github.com/pelton-run/pelton/manifests"
)

// Config is how the demo runs.
type Config struct {
	Events int
	Folder string // of the shipped functions
	Data   string // kept when named; otherwise a folder that is removed
	Keep   bool   // leave it running
	Listen string // of the server; any free port when empty and not kept
	JSON   bool
	Cache  string    // of compiled code; the user's own when empty
	Out    io.Writer // the result
	Notes  io.Writer // progress
	Log    zerolog.Logger
}

// ErrChecks says that the demo ran and its outcome is wrong.
var ErrChecks = errors.New("the outcome is not what the events must lead to")

// ErrUsage says that the demo cannot be run like that.
var ErrUsage = errors.New("wrong usage")

// timeout bounds the wait for the functions, in all and for each event.
const (
	timeoutBase  = 90 * time.Second
	timeoutEvent = 50 * time.Millisecond
)

// Run runs the demo. The error is ErrChecks if a check does not hold.
func Run(ctx context.Context, c Config) error {
	if c.Events < MinEvents {
		return fmt.Errorf("%w: %d events do not hold every kind; %d is the least", ErrUsage, c.Events, MinEvents)
	}
	data, remove, err := dataFolder(c.Data)
	if err != nil {
		return err
	}
	defer remove()
	w, err := newWorld()
	if err != nil {
		return err
	}
	defer w.close()
	d := &demo{config: c, data: data, world: w, load: newWorkload(c.Events, w.url)}
	if d.host, err = d.startHost(ctx); err != nil {
		return err
	}
	report, err := d.run(ctx)
	if err == nil {
		err = report.print(c.Out, c.JSON)
	}
	if err == nil && c.Keep {
		d.tell(c.Notes)
		<-ctx.Done()
	}
	err = errors.Join(err, d.host.Close())
	if err == nil && !report.OK {
		return ErrChecks
	}
	return err
}

// demo is one run.
type demo struct {
	config Config
	data   string
	world  *world
	load   *workload
	host   *up.Host
}

// dataFolder returns the folder to work in, and what removes it at the end.
func dataFolder(named string) (string, func(), error) {
	if named == "" {
		dir, err := os.MkdirTemp("", "pelton-demo-")
		if err != nil {
			return "", nil, fmt.Errorf("make data folder: %w", err)
		}
		return dir, func() { os.RemoveAll(dir) }, nil
	}
	if entries, err := os.ReadDir(named); err == nil && len(entries) > 0 {
		return "", nil, fmt.Errorf("data folder %s is not empty, and old results would spoil the checks; remove it or name another", named)
	}
	return named, func() {}, os.MkdirAll(named, 0o700)
}

// startHost runs a host on a copy of the shipped functions.
func (d *demo) startHost(ctx context.Context) (*up.Host, error) {
	folder := filepath.Join(d.data, "functions")
	if err := d.world.prepareFolder(d.config.Folder, folder); err != nil {
		return nil, err
	}
	config := up.Config{
		Folder: folder, Data: d.data, Name: "demo", Region: "local", Listen: "127.0.0.1:0", Log: d.config.Log,
		Place: &manifests.Host{Networks: manifests.Networks{Allow: []string{"127.0.0.0/8", "::1/128"}}}, // where its CDN and pictures are
		Secrets: func(name string) (string, error) {
			if name == "cf_token" {
				return cdnToken, nil
			}
			return "", fmt.Errorf("secret %s is not part of the demo", name)
		},
	}
	config.Cache = d.config.Cache
	if cache, err := os.UserCacheDir(); err == nil && config.Cache == "" {
		config.Cache = filepath.Join(cache, "pelton", "compiled") // so that only the first run compiles
	}
	if d.config.Listen != "" {
		config.Listen = d.config.Listen
	} else if d.config.Keep {
		config.Listen = "127.0.0.1:4222"
	}
	fmt.Fprintln(d.config.Notes, "starting a host with an embedded NATS server (the first start compiles the functions)")
	return up.Start(ctx, config)
}

// run publishes, waits until everything is done, and checks.
func (d *demo) run(ctx context.Context) (*Report, error) {
	for _, f := range d.host.Report().Functions {
		if len(f.Reasons) > 0 && f.Digest == "" {
			return nil, fmt.Errorf("function %s does not run: %s", f.Function, f.Reasons[0])
		}
	}
	if err := d.publishAll(ctx); err != nil {
		return nil, err
	}
	if err := d.waitIdle(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		r := d.report(nil)
		r.add("every durable is done", []string{err.Error()}, "")
		return r, nil
	}
	return d.check(ctx)
}

func (d *demo) publishAll(ctx context.Context) error {
	if err := d.waitStream(ctx); err != nil {
		return err
	}
	total := len(d.load.publications)
	for i, p := range d.load.publications {
		msg := &nats.Msg{Subject: p.subject, Data: []byte(p.body)}
		if _, err := d.host.JetStream().PublishMsg(ctx, msg, jetstream.WithMsgID(p.id)); err != nil {
			return fmt.Errorf("publish to %s: %w", p.subject, err)
		}
		if (i+1)%500 == 0 {
			fmt.Fprintf(d.config.Notes, "published %d of %d\n", i+1, total)
		}
	}
	fmt.Fprintf(d.config.Notes, "published %d events\n", total)
	return nil
}

// waitStream waits for the stream that the host creates.
func (d *demo) waitStream(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		_, err := d.host.JetStream().Stream(ctx, "VIDEO_EVENTS")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for stream VIDEO_EVENTS: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// waitIdle waits until no durable has anything pending or outstanding and no
// sitemap is older than its pages.
func (d *demo) waitIdle(ctx context.Context) error {
	limit := timeoutBase + time.Duration(d.config.Events)*timeoutEvent
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %s", limit))
	defer cancel()
	shown := time.Now()
	for {
		busy, err := d.busy(ctx)
		if err == nil && busy == "" {
			return nil
		}
		if time.Since(shown) > time.Second {
			shown = time.Now()
			d.showProgress(busy)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the functions: %w (%s)", context.Cause(ctx), busy)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// busy names what is not done yet.
func (d *demo) busy(ctx context.Context) (string, error) {
	stream, err := d.host.JetStream().Stream(ctx, "VIDEO_EVENTS")
	if err != nil {
		return "", err
	}
	consumers := stream.ListConsumers(ctx)
	found := 0
	busy := ""
	for info := range consumers.Info() {
		found++
		if info.NumPending > 0 || info.NumAckPending > 0 {
			busy = fmt.Sprintf("%s has %d pending and %d outstanding", info.Name, info.NumPending, info.NumAckPending)
		}
	}
	if err := consumers.Err(); err != nil {
		return "", err
	}
	if found < 5 {
		return fmt.Sprintf("%d of 5 durables are there", found), nil
	}
	if busy != "" {
		return busy, nil
	}
	dirty, err := d.count(ctx, "sitemap", "SELECT count(*) FROM dirty")
	if err == nil && dirty > 0 {
		busy = fmt.Sprintf("%d sitemaps are to be written", dirty)
	}
	return busy, err
}

func (d *demo) showProgress(busy string) {
	var acked, nak, dead uint64
	for _, f := range d.host.Report().Functions {
		acked, nak, dead = acked+f.Acked, nak+f.Nak, dead+f.DeadLetters
	}
	fmt.Fprintf(d.config.Notes, "acked %d, retried %d, dead letters %d; %s\n", acked, nak, dead, busy)
}

// tell says what to try while it is left running.
func (d *demo) tell(w io.Writer) {
	fmt.Fprintf(w, `
It is left running on %s. Try, in another terminal:

  nats micro ls
  nats micro info thumbnail
  nats micro stats index --json
  nats req search.videos '{"q":"video"}'
  nats consumer report VIDEO_EVENTS
  nats stream view DLQ
  bin/pelton ls

Thumbnails are in %s
Sitemaps are in   %s

Stop it with Ctrl-C.
`, d.host.URL(), filepath.Join(d.data, "blobs", "thumbs"), filepath.Join(d.data, "blobs", "site"))
}
