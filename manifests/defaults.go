package manifests

import (
	"path/filepath"
	"strings"
	"time"
)

const (
	second = Duration(time.Second)
	minute = Duration(time.Minute)
)

// applyDefaults fills in what the file leaves out. A field that is written
// keeps its value, zero too, so that validation can refuse it.
func applyDefaults(m *Manifest, d *document) {
	base := strings.TrimSuffix(filepath.Base(d.file), filepath.Ext(d.file))
	defaultTo(d, "version", &m.Version, "0.0.0")
	defaultTo(d, "module", &m.Module, base+".wasm")
	defaultTo(d, "isolation", &m.Isolation, "instance")
	defaultTo(d, "timeout", &m.Timeout, 30*second)
	defaultTo(d, "concurrency", &m.Concurrency, 32)
	if m.WriteDatabase() != "" && !d.has("concurrency") {
		m.Concurrency = 1
	}
	defaultTo(d, "retry.max_deliver", &m.Retry.MaxDeliver, 5)
	defaultTo(d, "retry.backoff", &m.Retry.Backoff, []Duration{second, 5 * second, 30 * second, 2 * minute})
	defaultTo(d, "retry.max_delay", &m.Retry.MaxDelay, 60*minute)
	defaultTo(d, "retry.breaker", &m.Retry.Breaker, Switch(true))
	defaultTo(d, "dead_letter.subject", &m.DeadLetter.Subject, "dlq.{{subject}}")
	if l := m.OnDownstreamLag; l != nil {
		defaultTo(d, "on_downstream_lag.resume_below", &l.ResumeBelow, l.PauseAbove/2)
	}
	defaultTo(d, "placement.hosts", &m.Placement.Hosts, "all")
	defaultGrants(m, d)
	defaultLimits(&m.Limits, d)
	for i := range m.Triggers {
		defaultTrigger(m, i, d)
	}
}

// defaultTo sets a field that the file does not mention.
func defaultTo[T any](d *document, path string, field *T, value T) {
	if !d.has(path) {
		*field = value
	}
}

func defaultTrigger(m *Manifest, i int, d *document) {
	t := &m.Triggers[i]
	path := triggerPath(i)
	defaultTo(d, path+".name", &t.Name, t.Kind())
	if t.Request != "" {
		return
	}
	durable := m.Name
	if i > 0 {
		durable += "-" + t.Name
	}
	t.Written = Written{AckWait: d.has(path + ".ack_wait"), MaxAckPending: d.has(path + ".max_ack_pending")}
	defaultTo(d, path+".durable_name", &t.DurableName, durable)
	defaultTo(d, path+".deliver_policy", &t.DeliverPolicy, "all")
	defaultTo(d, path+".ack_wait", &t.AckWait, 30*second)
	defaultTo(d, path+".batch.max", &t.Batch.Max, 1)
	defaultTo(d, path+".batch.wait", &t.Batch.Wait, 100*Duration(time.Millisecond))
	defaultTo(d, path+".max_ack_pending", &t.MaxAckPending, max(4000, 4*m.Concurrency*t.Batch.Max))
}

// Kind names what a trigger is: stream, schedule or request.
func (t *Trigger) Kind() string {
	switch {
	case t.Schedule != "":
		return "schedule"
	case t.Request != "":
		return "request"
	}
	return "stream"
}

func defaultGrants(m *Manifest, d *document) {
	for name, g := range m.Grants.SQLite {
		defaultTo(d, "grants.sqlite."+name+".mode", &g.Mode, ModeRead)
		m.Grants.SQLite[name] = g
	}
	for name, g := range m.Grants.Blob {
		defaultTo(d, "grants.blob."+name+".mode", &g.Mode, ModeRead)
		m.Grants.Blob[name] = g
	}
	for name, g := range m.Grants.KV {
		defaultTo(d, "grants.kv."+name+".mode", &g.Mode, ModeRead)
		m.Grants.KV[name] = g
	}
	for i := range m.Grants.HTTP {
		if len(m.Grants.HTTP[i].Methods) == 0 {
			m.Grants.HTTP[i].Methods = []string{"GET", "HEAD"}
		}
	}
	if m.Grants.Image != nil {
		defaultTo(d, "grants.image.max_pixels", &m.Grants.Image.MaxPixels, 50e6)
	}
}

func defaultLimits(l *Limits, d *document) {
	const kib, mib = 1 << 10, 1 << 20
	defaultTo(d, "limits.memory", &l.Memory, 64*mib)
	defaultTo(d, "limits.host_calls", &l.HostCalls, 1_000_000)
	defaultTo(d, "limits.sql_calls", &l.SQLCalls, 100_000)
	defaultTo(d, "limits.http_body", &l.HTTPBody, 16*mib)
	defaultTo(d, "limits.http_requests", &l.HTTPRequests, 1000)
	defaultTo(d, "limits.blob", &l.Blob, 64*mib)
	defaultTo(d, "limits.buffers", &l.Buffers, 128*mib)
	defaultTo(d, "limits.publishes", &l.Publishes, 10_000)
	defaultTo(d, "limits.publish_size", &l.PublishSize, 1*mib)
	defaultTo(d, "limits.requests", &l.Requests, 1000)
	defaultTo(d, "limits.hops", &l.Hops, 16)
	defaultTo(d, "limits.sql_rows", &l.SQLRows, 100_000)
	defaultTo(d, "limits.sql_bytes", &l.SQLBytes, 16*mib)
	defaultTo(d, "limits.response", &l.Response, 1*mib)
	defaultTo(d, "limits.tickets", &l.Tickets, 256)
	defaultTo(d, "limits.log", &l.Log, 64*kib)
	defaultTo(d, "limits.log_line", &l.LogLine, 8*kib)
}
