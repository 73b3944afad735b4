package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/host/blob"
	"github.com/pelton-run/pelton/host/httpc"
	hostimage "github.com/pelton-run/pelton/host/image"
	"github.com/pelton-run/pelton/host/publish"
	"github.com/pelton-run/pelton/host/sqlite"
	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime"
	"github.com/pelton-run/pelton/runtime/broker"
	"github.com/pelton-run/pelton/runtime/engine"
	"github.com/pelton-run/pelton/runtime/trigger"
)

const bin = "../bin"

var report Report

func TestMain(m *testing.M) {
	status := m.Run()
	if err := report.Write("out", "bench"); err != nil {
		fmt.Fprintln(os.Stderr, "write report:", err)
		status = 1
	}
	os.Exit(status)
}

// rig is a server with messages in a stream.
type rig struct {
	b      *testing.B
	nc     *nats.Conn
	js     jetstream.JetStream
	engine *engine.Engine
}

func newRig(b *testing.B) *rig {
	b.Helper()
	s, err := broker.Start("127.0.0.1:0", b.TempDir(), broker.DefaultSync, zerolog.Nop())
	must(b, err)
	nc, err := s.Connect()
	must(b, err)
	js, err := jetstream.New(nc)
	must(b, err)
	e, err := engine.New(context.Background(), engine.Config{CacheDir: filepath.Join(bin, "testers", "cache"), Unmetered: os.Getenv("UNMETERED") != ""})
	must(b, err)
	b.Cleanup(func() { e.Close(context.Background()); nc.Close(); s.Close() })
	return &rig{b: b, nc: nc, js: js, engine: e}
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// fill makes the stream with n messages.
func (r *rig) fill(n int, message func(i int) (subject string, body []byte)) {
	r.b.Helper()
	_, err := r.js.CreateStream(r.b.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"video.>"}})
	must(r.b, err)
	for i := range n {
		subject, body := message(i)
		_, err := r.js.PublishAsync(subject, body)
		must(r.b, err)
	}
	<-r.js.PublishAsyncComplete()
}

// stream makes another stream.
func (r *rig) stream(name, subjects string) error {
	_, err := r.js.CreateStream(r.b.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subjects}})
	return err
}

// prepared is a function that is ready to run.
type prepared struct {
	f        *runtime.Function
	consumer *trigger.Consumer
	leases   *trigger.Leases
	close    func()
}

func (r *rig) prepare(dir, name, extra string, durable string, grants *host.Grants) *prepared {
	r.b.Helper()
	wasm, err := os.ReadFile(filepath.Join(bin, dir, name+".wasm"))
	must(r.b, err)
	m, err := manifests.Decode(name+".yaml", []byte(extra))
	must(r.b, err)
	m.Triggers[0].DurableName = durable
	module, err := r.engine.Compile(context.Background(), engine.NewBinary(wasm), m)
	must(r.b, err)
	most := m.Instances.Max
	if most == 0 {
		most = 2
	}
	atOnce := min(most, m.Concurrency)
	pool, err := engine.NewPool(module, engine.Settings{Max: atOnce, Memory: int64(m.Limits.Memory), Env: m.Config, Shared: m.WriteDatabase() == "" && m.Triggers[0].Batch.Max == 1})
	must(r.b, err)
	must(r.b, pool.Try(context.Background()))
	if pool.Shared() {
		atOnce = m.Concurrency
	}
	p := &prepared{f: runtime.New(m, "", pool, grants, zerolog.New(io.Discard)), leases: trigger.NewLeases()}
	p.consumer = trigger.NewConsumer(trigger.ConsumerConfig{JS: r.js, Function: name, Trigger: m.Triggers[0], Concurrency: atOnce, Dispatcher: p.f,
		DeadLetters: &trigger.DeadLetters{JS: r.js, Config: m.DeadLetter, Function: name}, Leases: p.leases, Log: zerolog.New(io.Discard),
		Attempts: trigger.NewAttempts(r.js), Quiet: &trigger.Quiet{}, Owners: trigger.NewOwners(r.js, "bench"), Marks: filepath.Join(r.b.TempDir(), "marks")})
	p.close = func() { pool.Close(); module.Close(context.Background()) }
	return p
}

// drain runs the function until it has acked n messages, and returns the time
// from the first ack to the last.
func (p *prepared) drain(b *testing.B, n int) time.Duration {
	b.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { p.leases.Run(ctx) })
	group.Go(func() { p.consumer.Run(ctx, context.Background()) })
	acked := func() int { return int(p.f.Stats.Acked.Load()) }
	deadline := time.Now().Add(3 * time.Minute)
	for acked() == 0 && time.Now().Before(deadline) {
		time.Sleep(100 * time.Microsecond)
	}
	first, start := acked(), time.Now()
	for acked() < n && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	took := time.Since(start)
	stop()
	group.Wait()
	p.close()
	if acked() < n {
		b.Fatalf("%d of %d acked; last error %+v", acked(), n, p.f.Stats.LastError())
	}
	return took * time.Duration(n) / time.Duration(n-first)
}

// consume is a native consumer: handle is called for each message, acked after.
func (r *rig) consume(durable string, n int, handle func(jetstream.Msg)) time.Duration {
	r.b.Helper()
	c, err := r.js.CreateConsumer(r.b.Context(), "S", jetstream.ConsumerConfig{Durable: durable, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 4000})
	must(r.b, err)
	done := make(chan struct{})
	var count int
	var start time.Time
	cc, err := c.Consume(func(m jetstream.Msg) {
		if count == 0 {
			start = time.Now()
		}
		handle(m)
		if err := m.Ack(); err != nil {
			r.b.Error(err)
		}
		if count++; count == n {
			close(done)
		}
	}, jetstream.PullMaxMessages(1000))
	must(r.b, err)
	<-done
	cc.Stop()
	return time.Since(start)
}

func perSecond(n int, d time.Duration) float64 { return float64(n) / d.Seconds() }

// BenchmarkNoWork compares a function that acks with a native consumer that acks.
func BenchmarkNoWork(b *testing.B) {
	const n = 60_000
	r := newRig(b)
	body := make([]byte, 512)
	r.fill(n, func(i int) (string, []byte) { return fmt.Sprintf("video.x.%d", i%100), body })
	for _, batch := range batches() {
		ours, native := Interleave(Rounds, func(round int) time.Duration {
			extra := fmt.Sprintf("name: nowork\ntriggers: [{stream: S, batch: {max: %d, wait: 20ms}}]\n", batch)
			if batch > 1 {
				extra += "concurrency: 4\n"
			}
			return r.prepare("testers", "nowork", extra, fmt.Sprintf("ours-%d-%d", batch, round), &host.Grants{}).drain(b, n)
		}, func(round int) time.Duration {
			return r.consume(fmt.Sprintf("native-%d-%d", batch, round), n, func(jetstream.Msg) {})
		})
		f := report.Add(fmt.Sprintf("no-work function, batch %d, vs. native Consume + Ack", batch), "msg/s", perSecond(n, ours), perSecond(n, native), 0.6)
		b.ReportMetric(f.Ratio, fmt.Sprintf("ratio-batch%d", batch))
	}
}

// BenchmarkIndex compares the shipped index with native Go that decodes with
// encoding/json and runs the same statements, 100 messages a transaction.
func BenchmarkIndex(b *testing.B) {
	const n = 20_000
	r := newRig(b)
	r.fill(n, videoEvent)
	text, migrations := indexManifest(b)
	ours, native := Interleave(Rounds, func(round int) time.Duration {
		return r.index(text, migrations, fmt.Sprintf("ours-%d", round), n)
	}, func(round int) time.Duration {
		return r.nativeIndex(b, fmt.Sprintf("native-%d", round), n, 100, migrations)
	})
	f := report.Add("index, batches of 100, vs. native Go with the same statements", "msg/s", perSecond(n, ours), perSecond(n, native), 0.5)
	b.ReportMetric(f.Ratio, "ratio")
}

// videoEvent is message i of an index's stream.
func videoEvent(i int) (subject string, body []byte) {
	return fmt.Sprintf("video.ingested.src.v%d", i), fmt.Appendf(nil, `{"schema":1,"video_id":%d,"external_id":"v%d","source":"youtube","region":"eu","revision":1,"title":"A video about thing number %d and other words","duration":120,"thumb_url":"https://i.example.com/%d.jpg","occurred_at":"2026-11-30T12:00:00Z","channel":"Channel %d","category":"news","tags":["one","two","tag-%d"]}`, i, i, i, i, i%50, i%7)
}

// indexManifest is the shipped index's, for the bench's stream.
func indexManifest(b *testing.B) (text string, migrations []manifests.Migration) {
	b.Helper()
	raw, err := os.ReadFile("../manifests/index.yaml")
	must(b, err)
	m, err := manifests.Decode("index.yaml", raw)
	must(b, err)
	migrations, err = manifests.Migrations("../manifests", m.Grants.SQLite["search"])
	must(b, err)
	return replaceStream(string(raw)), migrations
}

// database opens a fresh database.
func database(b *testing.B, name string, migrations []manifests.Migration) *sqlite.Database {
	b.Helper()
	db, err := sqlite.Open(context.Background(), name, filepath.Join(b.TempDir(), name+".db"))
	must(b, err)
	must(b, db.Migrate(context.Background(), migrations))
	_, err = db.Ready(context.Background())
	must(b, err)
	return db
}

// index runs the shipped index over n messages.
func (r *rig) index(text string, migrations []manifests.Migration, durable string, n int) time.Duration {
	db := database(r.b, "search", migrations)
	defer db.Close()
	grants := &host.Grants{Databases: map[string]host.Database{"search": db}, Write: "search", Sender: publish.NewSender(r.js, nil)}
	return r.prepare("functions", "index", text, durable, grants).drain(r.b, n)
}

// BenchmarkThumbnail compares the shipped thumbnail with native Go that does the
// same with the same libraries, as many at a time.
func BenchmarkThumbnail(b *testing.B) {
	const n, workers = 40, 8
	r := newRig(b)
	picture := jpegPicture(b, 1280, 720)
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(picture) }))
	defer origin.Close()
	r.fill(n, func(i int) (string, []byte) {
		return fmt.Sprintf("video.ingested.src.v%d", i), fmt.Appendf(nil, `{"video_id":%d,"external_id":"v%d","revision":1,"thumb_url":"%s/%d.jpg"}`, i, i, origin.URL, i)
	})
	client, err := httpc.New("thumbnail", []manifests.HTTPGrant{{Origin: origin.URL, Methods: []string{"GET"}}}, 16<<20, nil, netip.MustParsePrefix("127.0.0.0/8"))
	must(b, err)
	defer client.Close()
	store, err := blob.Open(b.TempDir(), true, 0)
	must(b, err)
	defer store.Close()
	grants := &host.Grants{HTTP: client, Blobs: map[string]host.Blobs{"thumbs": store}, Images: hostimage.New(hostimage.NewGate(), 50e6),
		Publish: publish.New(r.nc, r.js, []manifests.PublishGrant{{Subject: "video.enriched.thumbnail.*"}})}
	manifest := fmt.Sprintf("name: thumbnail\ntriggers: [{stream: S, filter_subjects: [video.ingested.>]}]\nconcurrency: %d\ninstances: {max: %d}\ntimeout: 60s\nconfig: {widths: '320,640,1280'}\ngrants:\n  http: [{public: true}]\n  blob: {thumbs: {mode: write}}\n  image: {}\n  publish: [video.enriched.thumbnail.*]\n", workers, workers)
	ours, native := Interleave(3, func(round int) time.Duration {
		return r.prepare("functions", "thumbnail", manifest, fmt.Sprintf("ours-%d", round), grants).drain(b, n)
	}, func(round int) time.Duration {
		return r.nativeThumbnails(b, grants, origin.URL, n, workers)
	})
	f := report.Add("thumbnail, 1280x720 to three WebP widths, vs. native Go", "pictures/s", perSecond(n, ours), perSecond(n, native), 0.8)
	b.ReportMetric(f.Ratio, "ratio")
}

type silent struct{}

func (silent) Log(*host.Message, int, string, [][2]string) {}

// BenchmarkCall measures one invocation of an empty handler, metered and not.
func BenchmarkCall(b *testing.B) {
	const n = 20_000
	per := func(unmetered bool) func(int) time.Duration {
		return func(int) time.Duration {
			config := engine.Config{CacheDir: filepath.Join(bin, "testers", "cache"), Unmetered: unmetered}
			pool, closeAll := openPool(b, config)
			defer closeAll()
			message := []*host.Message{{Stream: "S", Subject: "a.b", Data: make([]byte, 512), Timestamp: time.Now()}}
			run := func() {
				c := host.NewCall(context.Background(), "f", &host.Grants{}, host.Limits{Tickets: 1}, silent{}, message)
				must(b, pool.Invoke(c))
				c.Close()
			}
			for range 1000 {
				run()
			}
			start := time.Now()
			for range n {
				run()
			}
			return time.Since(start) / n
		}
	}
	ours, plain := Interleave(3, per(false), per(true))
	report.AddTime("invocation of an empty Go handler (read, begin, end), vs. unmetered", "µs", micros(ours), micros(plain), 0)
	b.ReportMetric(micros(ours), "µs/call")
}

func openPool(b *testing.B, config engine.Config) (*engine.Pool, func()) {
	b.Helper()
	ctx := context.Background()
	e, err := engine.New(ctx, config)
	must(b, err)
	wasm, err := os.ReadFile(filepath.Join(bin, "testers", "nowork.wasm"))
	must(b, err)
	m, err := manifests.Decode("f.yaml", []byte("name: f\ntriggers: [{stream: S}]\n"))
	must(b, err)
	module, err := e.Compile(ctx, engine.NewBinary(wasm), m)
	must(b, err)
	pool, err := engine.NewPool(module, engine.Settings{Max: 1, Memory: 64 << 20, Shared: true})
	must(b, err)
	return pool, func() { pool.Close(); e.Close(ctx) }
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// BenchmarkStart measures compiling, cold and from the disk cache, and making an
// instance.
func BenchmarkStart(b *testing.B) {
	ctx := context.Background()
	wasm, err := os.ReadFile(filepath.Join(bin, "testers", "nowork.wasm"))
	must(b, err)
	m, err := manifests.Decode("f.yaml", []byte("name: f\ntriggers: [{stream: S}]\n"))
	must(b, err)
	dir := b.TempDir()
	compile := func(clear bool) time.Duration {
		if clear {
			must(b, os.RemoveAll(dir))
		}
		e, err := engine.New(ctx, engine.Config{CacheDir: dir})
		must(b, err)
		defer e.Close(ctx)
		start := time.Now()
		_, err = e.Compile(ctx, engine.NewBinary(wasm), m)
		must(b, err)
		return time.Since(start)
	}
	compile(true)
	var cached, cold []time.Duration
	for range 3 {
		cached = append(cached, compile(false))
	}
	for range 3 {
		cold = append(cold, compile(true))
	}
	report.AddTime(fmt.Sprintf("compile a Go guest of %.1f MB from the disk cache, vs. cold", float64(len(wasm))/1e6), "ms", micros(Median(cached))/1000, micros(Median(cold))/1000, 0)
	e, err := engine.New(ctx, engine.Config{CacheDir: dir})
	must(b, err)
	defer e.Close(ctx)
	module, err := e.Compile(ctx, engine.NewBinary(wasm), m)
	must(b, err)
	var instantiate []time.Duration
	for range 20 {
		start := time.Now()
		pool, err := engine.NewPool(module, engine.Settings{Max: 1, Memory: 64 << 20})
		must(b, err)
		must(b, pool.Try(ctx))
		instantiate = append(instantiate, time.Since(start))
		pool.Close()
	}
	report.AddTime("instantiate and initialise it, vs. compiling it cold", "ms", micros(Median(instantiate))/1000, micros(Median(cold))/1000, 0)
	b.ReportMetric(micros(Median(instantiate))/1000, "ms/instance")
}

// nativeThumbnails does the shipped function's work in plain Go.
func (r *rig) nativeThumbnails(b *testing.B, g *host.Grants, url string, n, workers int) time.Duration {
	var next atomic.Int64
	var group sync.WaitGroup
	start := time.Now()
	for range workers {
		group.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= int64(n) {
					return
				}
				ctx := context.Background()
				resp, err := g.HTTP.Do(ctx, &host.Request{Method: "GET", URL: fmt.Sprintf("%s/%d.jpg", url, i)})
				must(b, err)
				out, err := g.Images.Render(ctx, resp.Body, []host.Target{{Width: 320, Format: "webp"}, {Width: 640, Format: "webp"}, {Width: 1280, Format: "webp"}})
				must(b, err)
				for j, p := range out.Pictures {
					_, err := g.Blobs["thumbs"].Put(ctx, &host.BlobPut{Key: fmt.Sprintf("native%d_%d.webp", i, j), Data: p.Data})
					must(b, err)
				}
				_, err = g.Publish.Publish(ctx, &host.Outgoing{Subject: fmt.Sprintf("video.enriched.thumbnail.n%d", i), Data: []byte("{}")})
				must(b, err)
			}
		})
	}
	group.Wait()
	return time.Since(start)
}

func batches() []int {
	if os.Getenv("BATCH1") != "" {
		return []int{1}
	}
	return []int{1, 100}
}
