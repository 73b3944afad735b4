package manifests

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Bounds of manifest fields; beyond them a value is a mistake, not a wish.
const (
	MinAckWait     = 3 * second
	MaxConcurrency = 10_000
	MaxBatch       = 10_000
	MaxInstances   = 256
	MaxTriggers    = 16
	MaxGrants      = 64 // entries of one kind
	MaxMemory      = Size(2 << 30)
	MinMemory      = Size(4 << 20)
)

var (
	namePattern    = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	durablePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,200}$`)
	// The semantic version expression of semver.org, which nats micro demands.
	versionPattern = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$`)
	digestPattern  = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	streamPattern  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,255}$`)
	methodPattern  = regexp.MustCompile(`^(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)$`)
	envPattern     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	placeholder    = regexp.MustCompile(`\{\{\s*([^{}]*?)\s*\}\}`)
)

// validate records everything that is wrong with the values of a manifest.
func validate(m *Manifest, d *document) {
	validateIdentity(m, d)
	validateTriggers(m, d)
	inRange(d, "concurrency", m.Concurrency, 1, MaxConcurrency)
	if m.WriteDatabase() != "" && m.Concurrency > 1 {
		d.fail("concurrency", fmt.Sprintf("is %d, but a function with a sqlite write grant takes one batch at a time", m.Concurrency),
			"remove concurrency and let batch.max carry the load")
	}
	inRange(d, "instances.max", m.Instances.Max, 0, MaxInstances)
	oneOf(d, "isolation", m.Isolation, "instance", "message")
	positive(d, "timeout", m.Timeout)
	validateRetry(m, d)
	if l := m.OnDownstreamLag; l != nil {
		validateLag(l, d)
	}
	validateGrants(m, d)
	validateLimits(&m.Limits, d)
	oneOf(d, "placement.hosts", m.Placement.Hosts, "all", "one")
	if m.Replay != "" {
		oneOf(d, "replay", m.Replay, "idempotent")
	}
	for key := range m.Config {
		if !envPattern.MatchString(key) {
			d.fail("config."+key, "is not a name that an environment variable can have", "use letters, digits and _, such as widths or BASE_URL")
		}
	}
}

func validateIdentity(m *Manifest, d *document) {
	const nameHint = "use a-z, 0-9 and -, beginning with a letter or digit, 63 at most, such as img-resize"
	switch {
	case m.Name == "":
		d.fail("name", "is missing", nameHint)
	case !namePattern.MatchString(m.Name):
		d.fail("name", fmt.Sprintf("%q cannot be a function's name", m.Name), nameHint)
	case m.Name == "pelton":
		d.fail("name", "pelton is the name of the hosts' own service", "choose another name")
	}
	if !versionPattern.MatchString(m.Version) {
		d.fail("version", fmt.Sprintf("%q is not a semantic version", m.Version), "write three numbers without a leading v, such as 1.0.0")
	}
	if m.Digest != "" && !digestPattern.MatchString(m.Digest) {
		d.fail("digest", "is not a digest", "write sha256: and 64 hexadecimal digits, as sha256sum prints them")
	}
	if m.Module == "" || !localPath(m.Module) {
		d.fail("module", fmt.Sprintf("%q does not lie beside the manifest", m.Module), "give a relative path without .., such as "+m.Name+".wasm")
	}
	if len(m.Description) > 1024 {
		d.fail("description", "is longer than 1024 bytes", "keep it to a sentence")
	}
}

func localPath(p string) bool {
	clean := path.Clean(strings.ReplaceAll(p, `\`, "/"))
	return !path.IsAbs(clean) && clean != ".." && !strings.HasPrefix(clean, "../")
}

func validateTriggers(m *Manifest, d *document) {
	if len(m.Triggers) == 0 {
		d.fail("triggers", "is missing: nothing would ever call the function", "add a trigger, such as - stream: VIDEO_EVENTS")
	}
	if len(m.Triggers) > MaxTriggers {
		d.fail("triggers", fmt.Sprintf("has %d entries", len(m.Triggers)), fmt.Sprintf("%d at most", MaxTriggers))
	}
	names, durables, subjects := map[string]int{}, map[string]int{}, map[string]int{}
	for i := range m.Triggers {
		t := &m.Triggers[i]
		validateTrigger(m, t, triggerPath(i), d)
		if first, taken := names[t.Name]; taken {
			d.fail(triggerPath(i)+".name", fmt.Sprintf("%q is the name of triggers[%d] too", t.Name, first), "give one of them another name")
		}
		names[t.Name] = i
		if first, taken := subjects[t.Request]; taken && t.Request != "" {
			d.fail(triggerPath(i)+".request", fmt.Sprintf("%q is the subject of triggers[%d] too", t.Request, first), "a request would be answered twice; remove one of the two")
		}
		subjects[t.Request] = i
		if t.DurableName == "" {
			continue
		}
		if first, taken := durables[t.Stream+"/"+t.DurableName]; taken {
			d.fail(triggerPath(i)+".durable_name", fmt.Sprintf("%q is the durable of triggers[%d] too", t.DurableName, first), "each trigger on a stream needs a durable of its own")
		}
		durables[t.Stream+"/"+t.DurableName] = i
	}
}

func triggerPath(i int) string { return fmt.Sprintf("triggers[%d]", i) }

func validateTrigger(m *Manifest, t *Trigger, at string, d *document) {
	kinds := 0
	for _, set := range []string{t.Stream, t.Schedule, t.Request} {
		if set != "" {
			kinds++
		}
	}
	if kinds != 1 {
		d.fail(at, fmt.Sprintf("names %d of stream, schedule and request", kinds), "give exactly one of them")
		return
	}
	if !namePattern.MatchString(t.Name) {
		d.fail(at+".name", fmt.Sprintf("%q cannot be a trigger's name", t.Name), "use a-z, 0-9 and -")
	}
	switch t.Kind() {
	case "request":
		subjectPattern(d, at+".request", t.Request)
		refuseConsumerFields(d, at)
		return
	case "schedule":
		validateSchedule(d, at+".schedule", t.Schedule)
	case "stream":
		if !streamPattern.MatchString(t.Stream) {
			d.fail(at+".stream", fmt.Sprintf("%q cannot be a stream's name", t.Stream), "a stream's name has letters, digits, _ and -")
		}
	}
	validateConsumer(m, t, at, d)
}

// refuseConsumerFields refuses what a request trigger has no use for.
func refuseConsumerFields(d *document, at string) {
	for _, f := range []string{"filter_subjects", "durable_name", "deliver_policy", "opt_start_seq", "opt_start_time", "ack_wait", "max_ack_pending", "batch"} {
		if d.has(at + "." + f) {
			d.fail(at+"."+f, "belongs to a stream consumer, but this trigger answers requests", "remove it")
		}
	}
}

func validateConsumer(m *Manifest, t *Trigger, at string, d *document) {
	for i, s := range t.FilterSubjects {
		subjectPattern(d, fmt.Sprintf("%s.filter_subjects[%d]", at, i), s)
	}
	if d.has(at+".durable_name") && !durablePattern.MatchString(placeholder.ReplaceAllString(t.DurableName, "x")) {
		d.fail(at+".durable_name", fmt.Sprintf("%q cannot be a durable's name", t.DurableName), "use letters, digits, _ and -; {{region}} and {{host}} are filled in")
	}
	placeholders(d, at+".durable_name", t.DurableName, "region", "host")
	oneOf(d, at+".deliver_policy", t.DeliverPolicy, "all", "new", "by_start_sequence", "by_start_time")
	if (t.DeliverPolicy == "by_start_sequence") != (t.OptStartSeq > 0) {
		d.fail(at+".opt_start_seq", "goes with deliver_policy: by_start_sequence", "give both or neither")
	}
	if (t.DeliverPolicy == "by_start_time") != (t.OptStartTime != "") {
		d.fail(at+".opt_start_time", "goes with deliver_policy: by_start_time", "give both or neither")
	}
	if t.OptStartTime != "" {
		if _, err := time.Parse(time.RFC3339, t.OptStartTime); err != nil {
			d.fail(at+".opt_start_time", fmt.Sprintf("%q is not a time", t.OptStartTime), "write it as 2026-11-30T15:04:05Z")
		}
	}
	if t.AckWait < MinAckWait {
		d.fail(at+".ack_wait", fmt.Sprintf("%s is below the minimum of %s", t.AckWait, MinAckWait), "leases are extended while a handler works, so it need not cover the timeout; 30s is a good value")
	}
	if t.AckWait > 60*minute {
		d.fail(at+".ack_wait", fmt.Sprintf("%s is above the maximum of 1h", t.AckWait), "this is how soon a dead host is noticed; 30s is a good value")
	}
	inRange(d, at+".batch.max", t.Batch.Max, 1, MaxBatch)
	if t.Batch.Wait > t.AckWait/2 {
		d.fail(at+".batch.wait", fmt.Sprintf("%s is more than half of ack_wait", t.Batch.Wait), "wait a fraction of a second for more messages, such as 200ms")
	}
	if need := m.Concurrency * t.Batch.Max; t.MaxAckPending < need {
		d.fail(at+".max_ack_pending", fmt.Sprintf("%d is below concurrency × batch.max = %d, which could never be reached", t.MaxAckPending, need), "raise it, or leave it out")
	}
	if m.Isolation == "message" && t.Batch.Max > 1 {
		d.fail(at+".batch.max", "must be 1 with isolation: message", "remove one of the two")
	}
}

func validateRetry(m *Manifest, d *document) {
	inRange(d, "retry.max_deliver", m.Retry.MaxDeliver, 1, 1000)
	if len(m.Retry.Backoff) == 0 || len(m.Retry.Backoff) > 100 {
		d.fail("retry.backoff", fmt.Sprintf("has %d entries", len(m.Retry.Backoff)), "give 1 to 100 delays, such as [1s, 5s, 30s]")
	}
	for i, b := range m.Retry.Backoff {
		positive(d, fmt.Sprintf("retry.backoff[%d]", i), b)
	}
	positive(d, "retry.max_delay", m.Retry.MaxDelay)
	if d.has("retry.for") {
		positive(d, "retry.for", m.Retry.For)
	}
	if m.DeadLetter.On() && !strings.HasPrefix(m.DeadLetter.Subject, "dlq.") {
		d.fail("dead_letter.subject", fmt.Sprintf("%q does not begin with dlq.", m.DeadLetter.Subject), "the stream of dead letters takes dlq.>, and what comes from there is never dead-lettered again; write dlq.indexer, say")
	}
	if m.DeadLetter.On() {
		placeholders(d, "dead_letter.subject", m.DeadLetter.Subject, "subject", "function")
		literalSubject(d, "dead_letter.subject", placeholder.ReplaceAllString(m.DeadLetter.Subject, "x"))
	}
}

func validateLag(l *DownstreamLag, d *document) {
	if l.Stream == "" || l.Durable == "" || l.PauseAbove == 0 {
		d.fail("on_downstream_lag", "needs stream, durable and pause_above", "for example {stream: DOCS, durable: indexer, pause_above: 800}")
	}
	if l.ResumeBelow >= l.PauseAbove {
		d.fail("on_downstream_lag.resume_below", fmt.Sprintf("%d is not below pause_above %d", l.ResumeBelow, l.PauseAbove), "half of pause_above is the default")
	}
}

func validateGrants(m *Manifest, d *document) {
	writes := 0
	for name, g := range m.Grants.SQLite {
		at := "grants.sqlite." + name
		logicalName(d, at, name)
		oneOf(d, at+".mode", g.Mode, ModeRead, ModeWrite)
		if g.Mode == ModeWrite {
			writes++
		} else if g.Migrations != "" {
			d.fail(at+".migrations", "needs mode: write", "let the function that writes the database migrate it")
		}
		if g.Migrations != "" && !localPath(g.Migrations) {
			d.fail(at+".migrations", fmt.Sprintf("%q does not lie beside the manifest", g.Migrations), "give a relative path without ..")
		}
	}
	if writes > 1 {
		d.fail("grants.sqlite", fmt.Sprintf("has %d databases with mode: write", writes), "a function writes to one database at most, since that is its transaction")
	}
	for name, g := range m.Grants.Blob {
		logicalName(d, "grants.blob."+name, name)
		oneOf(d, "grants.blob."+name+".mode", g.Mode, ModeRead, ModeWrite)
	}
	for name, g := range m.Grants.KV {
		if !streamPattern.MatchString(name) {
			d.fail("grants.kv."+name, "cannot be a bucket's name", "use letters, digits, _ and -")
		}
		oneOf(d, "grants.kv."+name+".mode", g.Mode, ModeRead, ModeWrite)
	}
	for i := range m.Grants.HTTP {
		validateHTTP(&m.Grants.HTTP[i], fmt.Sprintf("grants.http[%d]", i), d)
	}
	for i, g := range m.Grants.Publish {
		grantedSubject(d, fmt.Sprintf("grants.publish[%d]", i), g.Subject)
	}
	for i, subject := range m.Grants.Request {
		grantedSubject(d, fmt.Sprintf("grants.request[%d]", i), subject)
	}
	if g := m.Grants.Image; g != nil && (g.MaxPixels < 1e3 || g.MaxPixels > 1e9) {
		d.fail("grants.image.max_pixels", "is not between 1k and 1000M", "50M is the default")
	}
	for kind, n := range map[string]int{"sqlite": len(m.Grants.SQLite), "http": len(m.Grants.HTTP), "blob": len(m.Grants.Blob), "kv": len(m.Grants.KV), "publish": len(m.Grants.Publish), "request": len(m.Grants.Request)} {
		if n > MaxGrants {
			d.fail("grants."+kind, fmt.Sprintf("has %d entries", n), fmt.Sprintf("%d at most", MaxGrants))
		}
	}
}

func grantedSubject(d *document, at, subject string) {
	subjectPattern(d, at, subject)
	if ReservedSubject(subject) {
		d.fail(at, fmt.Sprintf("%q reaches subjects that are not for functions", subject), "$…, _INBOX.> and pelton.> are reserved")
	}
}

func logicalName(d *document, at, name string) {
	if !namePattern.MatchString(placeholder.ReplaceAllString(name, "x")) {
		d.fail(at, fmt.Sprintf("%q cannot be a logical name", name), "use a-z, 0-9 and -; it names a file or folder below the host's data")
	}
}

func validateHTTP(g *HTTPGrant, at string, d *document) {
	if g.Public == (g.Origin != "") {
		d.fail(at, "needs either origin or public: true", `for example {origin: "https://api.example.com"}`)
	}
	if g.Origin != "" {
		if err := checkOrigin(g.Origin); err != "" {
			d.fail(at+".origin", fmt.Sprintf("%q %s", g.Origin, err), "write scheme://host or scheme://host:port; *. before the host stands for whole labels")
		}
	}
	for i, method := range g.Methods {
		if !methodPattern.MatchString(method) {
			d.fail(fmt.Sprintf("%s.methods[%d]", at, i), fmt.Sprintf("%q is not a method that can be granted", method), "GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS")
		}
	}
	for i, p := range g.Paths {
		if !strings.HasPrefix(p, "/") || strings.Contains(strings.TrimSuffix(p, "*"), "*") {
			d.fail(fmt.Sprintf("%s.paths[%d]", at, i), fmt.Sprintf("%q is not a path", p), "begin with /; one * may stand at the end")
		}
	}
	for name, value := range g.Headers {
		placeholders(d, at+".headers."+name, value, "secret.", "idempotency_key")
		secret := strings.Contains(value, "{{secret.")
		if secret && (g.Public || strings.Contains(g.Origin, "*")) {
			d.fail(at+".headers."+name, "holds a secret, but the grant is not for one exact origin", "give the origin that the secret is for")
		}
	}
}

// checkOrigin returns what is wrong with an origin, "" when nothing is.
func checkOrigin(origin string) string {
	u, err := url.Parse(origin)
	switch {
	case err != nil:
		return "is not a URL"
	case u.Scheme != "http" && u.Scheme != "https":
		return "is neither http nor https"
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		return "has more than a scheme, a host and a port"
	case u.Hostname() == "" || strings.Contains(strings.TrimPrefix(u.Hostname(), "*."), "*"):
		return "has no host, or a * that is not a whole first label"
	}
	return ""
}

func validateLimits(l *Limits, d *document) {
	if l.Memory < MinMemory || l.Memory > MaxMemory {
		d.fail("limits.memory", fmt.Sprintf("%s is not between %s and %s", l.Memory, MinMemory, MaxMemory), "64MiB is the default")
	}
	sizes := []struct {
		name string
		v    Size
	}{{"http_body", l.HTTPBody}, {"blob", l.Blob}, {"buffers", l.Buffers}, {"publish_size", l.PublishSize},
		{"sql_bytes", l.SQLBytes}, {"response", l.Response}, {"log", Size(l.Log)}, {"log_line", l.LogLine}}
	for _, s := range sizes {
		if s.v < 1 || s.v > 1<<30 {
			d.fail("limits."+s.name, fmt.Sprintf("%s is not between 1B and 1GiB", s.v), "leave it out for the default")
		}
	}
	if d.has("limits.cpu") && (l.CPU < Duration(time.Millisecond) || l.CPU > 24*60*minute) {
		d.fail("limits.cpu", fmt.Sprintf("%s is not between 1ms and 24h", l.CPU), "leave it out: the timeout bounds it too")
	}
	inRange(d, "limits.host_calls", l.HostCalls, 1, 1_000_000_000)
	inRange(d, "limits.sql_calls", l.SQLCalls, 1, 100_000_000)
	inRange(d, "limits.http_requests", l.HTTPRequests, 1, 1_000_000)
	inRange(d, "limits.publishes", l.Publishes, 1, 1_000_000)
	inRange(d, "limits.requests", l.Requests, 1, 1_000_000)
	inRange(d, "limits.hops", l.Hops, 1, 1000)
	inRange(d, "limits.sql_rows", l.SQLRows, 1, 10_000_000)
	inRange(d, "limits.tickets", l.Tickets, 1, 100_000)
}

func inRange(d *document, at string, v, low, high int) {
	if v < low || v > high {
		d.fail(at, fmt.Sprintf("%d is not between %d and %d", v, low, high), "leave it out for the default")
	}
}

func positive(d *document, at string, v Duration) {
	if v <= 0 {
		d.fail(at, "must be above zero", durationHint)
	}
}

func oneOf(d *document, at, v string, allowed ...string) {
	for _, a := range allowed {
		if v == a {
			return
		}
	}
	d.fail(at, fmt.Sprintf("%q is not one of %s", v, strings.Join(allowed, ", ")), "")
}

// placeholders refuses {{names}} other than the allowed ones; an allowed name
// that ends in a dot is a prefix.
func placeholders(d *document, at, v string, allowed ...string) {
	for _, m := range placeholder.FindAllStringSubmatch(v, -1) {
		ok := false
		for _, a := range allowed {
			ok = ok || m[1] == a || strings.HasSuffix(a, ".") && strings.HasPrefix(m[1], a) && len(m[1]) > len(a)
		}
		if !ok {
			d.fail(at, fmt.Sprintf("{{%s}} is not filled in here", m[1]), "known here: {{"+strings.ReplaceAll(strings.Join(allowed, "}}, {{"), "secret.", "secret.NAME")+"}}")
		}
	}
}

func validateSchedule(d *document, at, s string) {
	const hint = `write "@every 5m", "@hourly", "@daily", or cron such as "0 3 * * *"`
	if every, ok := strings.CutPrefix(s, "@every "); ok {
		if v, err := ParseDuration(every); err != nil || v < second {
			d.fail(at, fmt.Sprintf("%q is not an interval of at least 1s", every), hint)
		}
		return
	}
	switch s {
	case "@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly":
		return
	}
	fields := strings.Fields(s)
	if len(fields) != 5 && len(fields) != 6 {
		d.fail(at, fmt.Sprintf("%q is not a schedule", s), hint)
		return
	}
	if len(fields) == 5 {
		fields = append([]string{"0"}, fields...)
	}
	for i, f := range fields {
		if !cronField.MatchString(f) {
			d.fail(at, fmt.Sprintf("%q is not a cron field", f), hint)
			return
		}
		for _, n := range cronNumber.FindAllString(f, -1) {
			v, err := strconv.Atoi(n)
			if bounds := cronBounds[i]; err != nil || v < bounds.low || v > bounds.high {
				d.fail(at, fmt.Sprintf("%q is not a %s from %d to %d", n, bounds.what, bounds.low, bounds.high), hint)
				return
			}
		}
	}
}

var cronNumber = regexp.MustCompile(`\d+`)

// cronBounds are what the numbers of each cron field can be; a step is bounded
// like a value.
var cronBounds = [...]struct {
	what      string
	low, high int
}{{"second", 0, 59}, {"minute", 0, 59}, {"hour", 0, 23}, {"day of the month", 1, 31}, {"month", 1, 12}, {"day of the week", 0, 7}}

var cronField = regexp.MustCompile(`^[0-9A-Za-z*/,\-?]+$`)

// Cron returns a schedule in the form that the server takes: intervals and
// macros as they are, cron with its seconds.
func (t *Trigger) Cron() string {
	if !strings.HasPrefix(t.Schedule, "@") && len(strings.Fields(t.Schedule)) == 5 {
		return "0 " + t.Schedule
	}
	if every, ok := strings.CutPrefix(t.Schedule, "@every "); ok {
		d, _ := ParseDuration(every) // validated
		return "@every " + strconv.FormatInt(int64(d.Std()/time.Second), 10) + "s"
	}
	return t.Schedule
}
