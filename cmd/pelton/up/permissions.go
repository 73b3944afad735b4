package up

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime/broker"
	"github.com/pelton-run/pelton/runtime/status"
	"github.com/pelton-run/pelton/runtime/trigger"
)

// The roles that permissions are for.
const (
	RoleHost     = "host"     // pelton up
	RoleDeployer = "deployer" // makes streams and durables beforehand
	RoleOperator = "operator" // pelton dlq redrive and purge, and what a viewer may
	RoleViewer   = "viewer"   // pelton ls, info, dlq ls and show
)

// Roles are all of them.
var roles = []string{RoleHost, RoleDeployer, RoleOperator, RoleViewer}

// Roles returns the roles that permissions are for.
func Roles() []string { return slices.Clone(roles) }

// Permissions are the subjects that a NATS user may publish and subscribe to, sorted.
type Permissions struct {
	Publish   []string `json:"publish"`
	Subscribe []string `json:"subscribe"`
	// Responses says that answers to what comes in go to subjects that are not among
	// Publish: allow_responses.
	Responses bool `json:"responses"`
}

// PermissionsConfig is what permissions are made of.
type PermissionsConfig struct {
	Role        string
	Manifests   []*manifests.Manifest
	Streams     *manifests.Streams // nil for none
	Place       *manifests.Host    // of a host, nil for none
	Host        string             // of a host, "" for any
	Region      string
	API         broker.API
	InboxPrefix string // _INBOX when empty
}

// PermissionsFor returns the least that a role needs for a set of functions, on a
// server that has none of their streams yet.
func PermissionsFor(c PermissionsConfig) (Permissions, error) {
	g := &granter{config: c, api: apiSubjects(c.API), publish: map[string]bool{}, subscribe: map[string]bool{}}
	g.listen(inbox(c.InboxPrefix) + ".>")
	var err error
	switch c.Role {
	case RoleHost:
		err = g.host()
	case RoleDeployer:
		err = g.deployer()
	case RoleOperator:
		err = g.operator()
	case RoleViewer:
		g.viewer()
	default:
		err = fmt.Errorf("there is no role %q: %s", c.Role, strings.Join(roles, ", "))
	}
	if err != nil {
		return Permissions{}, err
	}
	return Permissions{Publish: covered(g.publish), Subscribe: covered(g.subscribe), Responses: c.Role == RoleHost}, nil
}

// granter collects subjects.
type granter struct {
	config             PermissionsConfig
	api                string // prefix of JetStream's
	publish, subscribe map[string]bool
}

func (g *granter) say(subjects ...string) {
	for _, s := range subjects {
		g.publish[s] = true
	}
}

func (g *granter) listen(subjects ...string) {
	for _, s := range subjects {
		g.subscribe[s] = true
	}
}

// ask adds requests to JetStream's API.
func (g *granter) ask(requests ...string) {
	for _, r := range requests {
		g.say(g.api + r)
	}
}

func inbox(prefix string) string {
	if prefix == "" {
		return "_INBOX"
	}
	return prefix
}

func apiSubjects(a broker.API) string {
	switch {
	case a.Domain != "":
		return "$JS." + a.Domain + ".API."
	case a.Prefix != "":
		return strings.TrimSuffix(a.Prefix, ".") + "."
	}
	return "$JS.API."
}

// host is what a host says and hears.
func (g *granter) host() error {
	name := g.config.Host
	if name == "" {
		name = "*"
	}
	g.service(status.ServiceName)
	g.listen(status.ReadSubjects+name+".list", status.AdminSubjects+name+".redrive")
	g.say("$SRV.PING."+status.ServiceName, status.ReadSubjects+"*.list") // what the other hosts tell
	g.keyValue(trigger.AttemptsBucket)
	g.keyValue(trigger.OwnersBucket)
	g.deadLetters()
	if s := g.config.Streams; s != nil {
		for _, d := range s.Streams {
			g.ask("STREAM.INFO."+d.Name, "STREAM.CREATE."+d.Name)
		}
		if len(s.DeadLetter.Watch) > 0 {
			g.watch(s.DeadLetter.Watch)
		}
	}
	for _, m := range g.config.Manifests {
		placed, err := g.place(m)
		if err != nil {
			return err
		}
		g.service(m.Name)
		g.listen(status.FunctionSubjects + m.Name + "." + name + ".health")
		for _, t := range placed.Triggers {
			g.trigger(t)
		}
		g.grants(placed)
		if d := placed.DeadLetter; d.On() {
			g.say(g.letterSubjects(placed)...)
		}
	}
	return nil
}

// place fills region and host in, and says which it would have to know.
func (g *granter) place(m *manifests.Manifest) (*manifests.Manifest, error) {
	for _, t := range m.Triggers {
		text := t.DurableName + t.Request + strings.Join(t.FilterSubjects, "")
		if g.config.Host == "" && strings.Contains(text, "{{host}}") {
			return nil, fmt.Errorf("function %s has {{host}} in its subjects or durables: say which host with --name", m.Name)
		}
		if g.config.Region == "" && strings.Contains(text, "{{region}}") {
			return nil, fmt.Errorf("function %s has {{region}} in its subjects or durables: say which with --region", m.Name)
		}
	}
	return m.On(g.config.Region, g.config.Host), nil
}

// service is what a micro service hears of the framework.
func (g *granter) service(name string) {
	for _, verb := range []string{"PING", "INFO", "STATS"} {
		g.listen("$SRV."+verb, "$SRV."+verb+"."+name, "$SRV."+verb+"."+name+".*")
	}
}

func (g *granter) trigger(t manifests.Trigger) {
	if t.Request != "" {
		g.listen(t.Request)
		return
	}
	if t.Schedule != "" {
		t = trigger.ScheduleTrigger(t)
		g.ask("INFO", "STREAM.CREATE."+t.Stream)
		g.say(trigger.ScheduleDefinition(t.DurableName))
	}
	g.stream(t.Stream)
	g.durable(t.Stream, t.DurableName)
}

// stream is looking at a stream and its messages.
func (g *granter) stream(name string) {
	g.ask("STREAM.INFO."+name, "STREAM.MSG.GET."+name, "DIRECT.GET."+name, "DIRECT.GET."+name+".>")
}

func (g *granter) durable(stream, durable string) {
	at := stream + "." + durable
	g.ask("CONSUMER.INFO."+at, "CONSUMER.CREATE."+at, "CONSUMER.CREATE."+at+".>", "CONSUMER.MSG.NEXT."+at,
		"CONSUMER.PAUSE."+at, "CONSUMER.RESET."+at, "CONSUMER.DELETE."+at)
	g.say("$JS.ACK."+at+".>", "$JS.ACK.*.*."+at+".>")
}

// reader is a consumer that a client makes for one reading, under a name that it
// makes up.
func (g *granter) reader(stream string) {
	g.ask("CONSUMER.CREATE."+stream+".>", "CONSUMER.DELETE."+stream+".>", "CONSUMER.INFO."+stream+".>", "CONSUMER.MSG.NEXT."+stream+".>")
}

func (g *granter) keyValue(bucket string) {
	g.ask("STREAM.CREATE.KV_" + bucket)
	g.stream("KV_" + bucket)
	g.reader("KV_" + bucket)
	g.say("$KV." + bucket + ".>")
}

func (g *granter) objects(bucket string, write bool) {
	g.stream("OBJ_" + bucket)
	g.reader("OBJ_" + bucket)
	if write {
		g.ask("STREAM.PURGE.OBJ_" + bucket)
		g.say("$O." + bucket + ".>")
	}
}

// deadLetters is storing them, and redriving one when a command line asks for it.
func (g *granter) deadLetters() {
	g.ask("STREAM.NAMES", "STREAM.CREATE."+trigger.DeadLetterStream, "STREAM.MSG.DELETE."+trigger.DeadLetterStream)
	g.stream(trigger.DeadLetterStream)
	g.ask("STREAM.CREATE.OBJ_" + trigger.BodiesBucket)
	g.objects(trigger.BodiesBucket, true)
}

// letterSubjects are where a function's dead letters go.
func (g *granter) letterSubjects(m *manifests.Manifest) (subjects []string) {
	for _, t := range m.Triggers {
		if t.Schedule != "" {
			t = trigger.ScheduleTrigger(t)
		}
		if t.Request != "" {
			continue
		}
		filters := t.FilterSubjects
		if len(filters) == 0 {
			filters = g.subjectsOf(t.Stream)
		}
		for _, f := range filters {
			s := manifests.Expand(m.DeadLetter.Subject, map[string]string{"subject": f, "function": m.Name})
			if before, _, ok := strings.Cut(s, ".>."); ok { // what follows the rest of a subject
				s = before + ".>"
			}
			subjects = append(subjects, s)
		}
	}
	return subjects
}

// subjectsOf are a stream's, as it is declared; of one that is not, anything.
func (g *granter) subjectsOf(stream string) []string {
	if g.config.Streams != nil {
		for _, s := range g.config.Streams.Streams {
			if s.Name == stream && len(s.Subjects) > 0 {
				return s.Subjects
			}
		}
	}
	return []string{">"}
}

func (g *granter) watch(watched []manifests.Watched) {
	g.ask("STREAM.CREATE."+trigger.AdvisoryStream, "STREAM.UPDATE."+trigger.AdvisoryStream)
	g.stream(trigger.AdvisoryStream)
	g.durable(trigger.AdvisoryStream, trigger.AdvisoryDurable)
	for _, w := range watched {
		g.stream(w.Stream)
		for _, s := range g.subjectsOf(w.Stream) {
			g.say("dlq." + s)
		}
	}
}

// grants is what a host does over NATS for a function's handler.
func (g *granter) grants(m *manifests.Manifest) {
	for _, p := range m.Grants.Publish {
		g.say(p.Subject)
	}
	g.say(m.Grants.Request...)
	for bucket, grant := range m.Grants.KV {
		g.stream("KV_" + bucket)
		g.reader("KV_" + bucket)
		if grant.Mode == manifests.ModeWrite {
			g.say("$KV." + bucket + ".>")
		}
		if grant.Create {
			g.ask("STREAM.CREATE.KV_" + bucket)
		}
	}
	for name, grant := range m.Grants.Blob {
		if place := g.config.Place; place != nil && place.Blobs[name].Bucket != "" {
			g.objects(place.Blobs[name].Bucket, grant.Mode == manifests.ModeWrite)
		}
	}
}

// deployer makes the streams and durables, so that they are there before a host is.
func (g *granter) deployer() error {
	g.ask("INFO", "STREAM.NAMES", "STREAM.LIST")
	if s := g.config.Streams; s != nil {
		for _, d := range s.Streams {
			g.ask("STREAM.INFO."+d.Name, "STREAM.CREATE."+d.Name, "STREAM.UPDATE."+d.Name)
		}
	}
	for _, m := range g.config.Manifests {
		placed, err := g.place(m)
		if err != nil {
			return err
		}
		for _, t := range placed.Triggers {
			if t.Request == "" && t.Schedule == "" {
				at := t.Stream + "." + t.DurableName
				g.ask("STREAM.INFO."+t.Stream, "CONSUMER.INFO."+at, "CONSUMER.CREATE."+at, "CONSUMER.CREATE."+at+".>", "CONSUMER.DELETE."+at)
			}
		}
	}
	return nil
}

// viewer looks.
func (g *granter) viewer() {
	g.say("$SRV.PING", "$SRV.INFO", "$SRV.STATS", "$SRV.PING.>", "$SRV.INFO.>", "$SRV.STATS.>")
	g.say(status.ReadSubjects+"*.list", status.FunctionSubjects+"*.*.health")
	g.ask("STREAM.NAMES")
	g.stream(trigger.DeadLetterStream)
	g.reader(trigger.DeadLetterStream)
	g.objects(trigger.BodiesBucket, false)
	for _, m := range g.config.Manifests { // how well they keep what they have
		for _, t := range m.Triggers {
			if t.Schedule != "" {
				t = trigger.ScheduleTrigger(t)
			}
			if t.Stream != "" {
				g.ask("STREAM.INFO." + t.Stream)
			}
		}
	}
}

// operator looks, redrives dead letters to where they came from, and removes them.
func (g *granter) operator() error {
	g.viewer()
	g.say(status.AdminSubjects + "*.redrive")
	g.ask("STREAM.MSG.DELETE." + trigger.DeadLetterStream)
	g.keyValue(trigger.AttemptsBucket)
	for _, m := range g.config.Manifests {
		placed, err := g.place(m)
		if err != nil {
			return err
		}
		for _, t := range placed.Triggers {
			if t.Request != "" || t.Schedule != "" {
				continue
			}
			if len(t.FilterSubjects) == 0 {
				g.say(g.subjectsOf(t.Stream)...)
			}
			g.say(t.FilterSubjects...)
		}
	}
	return nil
}

// covered sorts subjects, and leaves out those that others among them cover.
func covered(subjects map[string]bool) []string {
	kept := []string{}
	for _, s := range slices.Sorted(maps.Keys(subjects)) {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(subjects)), func(other string) bool { return other != s && manifests.SubjectMatches(other, s) }) {
			kept = append(kept, s)
		}
	}
	return kept
}
