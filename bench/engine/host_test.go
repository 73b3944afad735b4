package engine

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/pelton-run/pelton/bench"
	"github.com/pelton-run/pelton/cmd/pelton/up"
	"github.com/pelton-run/pelton/runtime/engine"
)

// BenchmarkStart measures the start of a host with all shipped functions from a
// warm cache to the first message that is done.
func BenchmarkStart(b *testing.B) {
	data := b.TempDir()
	start := func(i int) time.Duration {
		begin := time.Now()
		h, err := up.Start(context.Background(), up.Config{
			Folder: filepath.Join(bin, "functions"), Data: filepath.Join(data, strconv.Itoa(i)), Cache: filepath.Join(data, "cache"),
			Listen: "127.0.0.1:0", Name: "bench", Log: zerolog.Nop(), Grace: time.Second,
		})
		must(b, err)
		defer h.Close()
		event := `{"schema":1,"video_id":1,"external_id":"v1","source":"youtube","region":"eu","revision":1,"title":"A video","category":"news"}`
		for {
			if _, err = h.JetStream().Publish(context.Background(), "video.ingested.youtube.v1", []byte(event)); err == nil {
				break
			}
			time.Sleep(5 * time.Millisecond) // the stream is being made
		}
		for {
			for _, f := range h.Report().Functions {
				if f.Function == "counters" && f.Acked > 0 {
					return time.Since(begin)
				}
			}
			time.Sleep(time.Millisecond)
		}
	}
	start(0)
	var all []time.Duration
	for i := range 5 {
		all = append(all, start(i+1))
	}
	took := bench.Median(all)
	report.AddTime("start of up with all shipped functions from a warm cache to the first delivery, vs. 1 s", "ms", millis(took), 1000, 1)
	b.ReportMetric(millis(took), "ms")
}

// thousand writes a folder of functions that share ten modules over ten streams.
func thousand(b *testing.B, functions int) string {
	b.Helper()
	dir := b.TempDir()
	module := guest(b, "nowork")
	write := func(name string, data []byte) { must(b, os.WriteFile(filepath.Join(dir, name), data, 0o644)) }
	streams := "streams:\n"
	for i := range 10 {
		custom := []byte{0, 3, 1, 'x', byte(i)} // another digest
		write(fmt.Sprintf("m%d.wasm", i), append(module[:len(module):len(module)], custom...))
		streams += fmt.Sprintf("  - {name: S%d, subjects: ['s%d.>'], max_age: 1h}\n", i, i)
	}
	write("streams.yaml", []byte(streams))
	for i := range functions {
		write(fmt.Sprintf("f%d.yaml", i), fmt.Appendf(nil, "name: f%d\nmodule: m%d.wasm\ntriggers: [{stream: S%d, filter_subjects: [s%d.%d]}]\n", i, i%10, i%10, i%10, i))
	}
	return dir
}

// process is a running pelton up.
type process struct {
	b   *testing.B
	run *exec.Cmd
	log *bufio.Scanner
	url string
}

func launch(b *testing.B, args ...string) *process {
	b.Helper()
	p := &process{b: b, run: exec.Command(filepath.Join(bin, "pelton"), append([]string{"up"}, args...)...)}
	out, err := p.run.StderrPipe()
	must(b, err)
	must(b, p.run.Start())
	p.log = bufio.NewScanner(out)
	return p
}

// ready reads the log until the host is up.
func (p *process) ready() *process {
	for p.log.Scan() {
		if line := p.log.Text(); strings.Contains(line, `"up; stop with Ctrl-C"`) {
			_, url, _ := strings.Cut(line, `"url":"`)
			p.url, _, _ = strings.Cut(url, `"`)
			go func() {
				for p.log.Scan() {
				}
			}()
			return p
		}
	}
	p.b.Fatal("the host did not come up")
	return nil
}

func (p *process) stop() {
	must(p.b, p.run.Process.Signal(syscall.SIGINT))
	must(p.b, p.run.Wait())
}

// resident is the process's memory in MB.
func (p *process) resident() float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.run.Process.Pid))
	must(p.b, err)
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			must(p.b, err)
			return float64(n) * 1024 / 1e6
		}
	}
	p.b.Fatal("no VmRSS")
	return 0
}

// BenchmarkThousand measures a host with 1,000 idle functions, beside one with
// none, on an external server and with an embedded one.
func BenchmarkThousand(b *testing.B) {
	folder, empty := thousand(b, 1000), b.TempDir()
	server := launch(b, "--dir", empty, "--data", b.TempDir(), "--listen", "127.0.0.1:0").ready()
	defer server.stop()
	for _, where := range []string{"external", "embedded"} {
		link := func() []string { return []string{"--data", b.TempDir(), "--listen", "127.0.0.1:0"} }
		if where == "external" {
			link = func() []string { return []string{"--data", b.TempDir(), "--nats", server.url} }
		}
		none := launch(b, append(link(), "--dir", empty, "--name", "none")...).ready()
		begin := time.Now()
		many := launch(b, append(link(), "--dir", folder, "--name", "many")...).ready()
		took := time.Since(begin)
		time.Sleep(engine.IdleTimeout*3/2 + engine.UnloadAfter + 5*time.Second) // until no instance is alive
		over := many.resident() - none.resident()
		memory, seconds := 150.0, 10.0
		if where == "embedded" {
			memory, seconds = 0, 0 // shown, no goal
		}
		add := func(name, unit string, v, limit float64) {
			goal := 0.0
			if limit > 0 {
				name, goal = fmt.Sprintf("%s, vs. %g %s", name, limit, unit), 1
			} else {
				limit = 1
			}
			report.AddTime(name, unit, v, limit, goal)
		}
		add("1,000 idle functions on an "+where+" server: memory over an empty host", "MB", over, memory)
		add("1,000 functions on an "+where+" server: cold start", "s", took.Seconds(), seconds)
		many.stop()
		none.stop()
	}
}
