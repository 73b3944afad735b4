package manifests

// Manifest is the declaration of one function, as written, with its defaults
// filled in once [Decode] has returned it. It is not changed afterwards and is
// safe to share.
type Manifest struct {
	Name        string `json:"name" jsonschema:"required"` // [a-z0-9][a-z0-9-]{0,62}; the micro service's name
	Version     string `json:"version,omitempty"`          // semantic version
	Description string `json:"description,omitempty"`      // one line, shown by nats micro
	Module      string `json:"module,omitempty"`           // path beside the manifest
	Digest      string `json:"digest,omitempty"`           // sha256:…, a pin of the module

	Triggers    []Trigger  `json:"triggers" jsonschema:"required"`
	Concurrency int        `json:"concurrency,omitempty"` // invocations in flight on one host
	Instances   Instances  `json:"instances,omitzero"`
	Isolation   string     `json:"isolation,omitempty"` // instance or message
	Timeout     Duration   `json:"timeout,omitempty"`   // of one invocation
	Retry       Retry      `json:"retry,omitzero"`
	DeadLetter  DeadLetter `json:"dead_letter,omitzero"`

	OnDownstreamLag *DownstreamLag    `json:"on_downstream_lag,omitempty"`
	Grants          Grants            `json:"grants,omitzero"`
	Config          map[string]string `json:"config,omitempty"` // the guest's environment
	Limits          Limits            `json:"limits,omitzero"`
	Placement       Placement         `json:"placement,omitzero"`
	Alerts          Alerts            `json:"alerts,omitzero"`
	Replay          string            `json:"replay,omitempty"` // idempotent, or empty
}

// Trigger is what causes invocations. Exactly one of Stream, Schedule and
// Request is set.
type Trigger struct {
	Stream   string `json:"stream,omitempty"`   // a JetStream stream
	Schedule string `json:"schedule,omitempty"` // "@every 5m", or cron with five or six fields
	Request  string `json:"request,omitempty"`  // a subject answered as a micro endpoint
	Name     string `json:"name,omitempty"`     // what the handler sees

	FilterSubjects []string `json:"filter_subjects,omitempty"`
	DurableName    string   `json:"durable_name,omitempty"`
	DeliverPolicy  string   `json:"deliver_policy,omitempty"` // all, new, by_start_sequence, by_start_time
	OptStartSeq    uint64   `json:"opt_start_seq,omitempty"`
	OptStartTime   string   `json:"opt_start_time,omitempty"` // RFC 3339
	AckWait        Duration `json:"ack_wait,omitempty"`
	MaxAckPending  int      `json:"max_ack_pending,omitempty"`
	Written        Written  `json:"-"` // which of these the file has
	Batch          Batching `json:"batch,omitzero"`
}

// Written says which fields of a trigger the manifest names: the others are left
// as an operator has set them on a durable that exists.
type Written struct{ AckWait, MaxAckPending bool }

// Batching says how many deliveries one invocation takes.
type Batching struct {
	Max  int      `json:"max,omitempty"`  // deliveries
	Wait Duration `json:"wait,omitempty"` // for more after the first
}

// Instances bounds the guest instances of one host.
type Instances struct {
	Max int `json:"max,omitempty"`
}

// Retry says what becomes of a failed attempt.
type Retry struct {
	MaxDeliver int        `json:"max_deliver,omitempty"` // attempts, the first included
	Backoff    []Duration `json:"backoff,omitempty"`     // delay after attempt 1, 2, …; the last repeats
	MaxDelay   Duration   `json:"max_delay,omitempty"`   // the longest delay that a handler can ask for
	For        Duration   `json:"for,omitempty"`         // since the message was stored; 0 means no limit
	Breaker    Switch     `json:"breaker"`
}

// DeadLetter says where messages go that were given up on.
type DeadLetter struct {
	Subject string `json:"subject,omitempty"` // {{subject}} and {{function}} are filled in
	Enabled *bool  `json:"enabled,omitempty"` // false drops them, said explicitly
}

// On reports whether dead letters are kept.
func (d DeadLetter) On() bool { return d.Enabled == nil || *d.Enabled }

// DownstreamLag pauses a function while a durable further down lags.
type DownstreamLag struct {
	Stream      string `json:"stream"`
	Durable     string `json:"durable"`
	PauseAbove  uint64 `json:"pause_above"`
	ResumeBelow uint64 `json:"resume_below,omitempty"` // half of PauseAbove by default
}

// Grants is what the manifest permits of each capability. What is not listed
// is denied.
type Grants struct {
	SQLite  map[string]SQLiteGrant `json:"sqlite,omitempty"`
	HTTP    []HTTPGrant            `json:"http,omitempty"`
	Blob    map[string]BlobGrant   `json:"blob,omitempty"`
	KV      map[string]KVGrant     `json:"kv,omitempty"`
	Publish []PublishGrant         `json:"publish,omitempty"`
	Request []string               `json:"request,omitempty"` // subjects of services that it may ask
	Image   *ImageGrant            `json:"image,omitempty"`
}

// The modes of a grant.
const (
	ModeRead  = "read"
	ModeWrite = "write"
)

// SQLiteGrant permits one database.
type SQLiteGrant struct {
	Mode       string `json:"mode,omitempty"`       // read or write
	Migrations string `json:"migrations,omitempty"` // a folder of .sql files beside the manifest
}

// HTTPGrant permits requests to one origin, or to any public address.
type HTTPGrant struct {
	Origin  string            `json:"origin,omitempty"` // scheme://host[:port]; a leading *. stands for whole labels
	Public  bool              `json:"public,omitempty"`
	Methods []string          `json:"methods,omitempty"` // GET and HEAD by default
	Paths   []string          `json:"paths,omitempty"`   // a trailing * is a prefix; all by default
	Headers map[string]string `json:"headers,omitempty"` // set by the host; may hold {{secret.name}} and {{idempotency_key}}
}

// BlobGrant permits one blob store.
type BlobGrant struct {
	Mode string `json:"mode,omitempty"`
}

// KVGrant permits one key-value bucket.
type KVGrant struct {
	Mode   string `json:"mode,omitempty"`
	Create bool   `json:"create,omitempty"` // create the bucket if it does not exist
}

// PublishGrant permits publishing to a subject pattern.
type PublishGrant struct {
	Subject string `json:"subject"`
	Core    bool   `json:"core,omitempty"` // core NATS, without a stream that takes it
}

// ImageGrant permits decoding and encoding pictures.
type ImageGrant struct {
	MaxPixels Pixels `json:"max_pixels,omitempty"`
}

// Limits bounds what one function may use. Every one has a default.
type Limits struct {
	Memory       Size     `json:"memory,omitempty"`        // of one guest instance
	CPU          Duration `json:"cpu,omitempty"`           // inside the guest, of one invocation
	HostCalls    int      `json:"host_calls,omitempty"`    // of one invocation
	SQLCalls     int      `json:"sql_calls,omitempty"`     // statements of one invocation
	HTTPBody     Size     `json:"http_body,omitempty"`     // of one response, decoded
	HTTPRequests int      `json:"http_requests,omitempty"` // of one invocation
	Blob         Size     `json:"blob,omitempty"`          // of one blob
	Buffers      Size     `json:"buffers,omitempty"`       // of all buffers of one invocation
	Publishes    int      `json:"publishes,omitempty"`     // of one invocation
	PublishSize  Size     `json:"publish_size,omitempty"`  // of one message
	Requests     int      `json:"requests,omitempty"`      // to services, of one invocation
	Hops         int      `json:"hops,omitempty"`          // publishes in a row, each for the message of the one before
	SQLRows      int      `json:"sql_rows,omitempty"`      // of one query
	SQLBytes     Size     `json:"sql_bytes,omitempty"`     // of one query's rows
	Response     Size     `json:"response,omitempty"`      // of one answer to a request
	Tickets      int      `json:"tickets,omitempty"`       // operations in flight in one invocation
	Log          Rate     `json:"log,omitempty"`
	LogLine      Size     `json:"log_line,omitempty"`
}

// Placement says on which hosts a function runs.
type Placement struct {
	Regions []string `json:"regions,omitempty"` // all by default
	Hosts   string   `json:"hosts,omitempty"`   // all or one
}

// Alerts are the marks above which a function's health is degraded.
type Alerts struct {
	Pending     uint64   `json:"pending,omitempty"`
	Oldest      Duration `json:"oldest,omitempty"`
	Redelivered Share    `json:"redelivered,omitempty"`
}

// WriteDatabase returns the name of the database that the function writes to,
// "" when it writes to none. Validation permits one at most.
func (m *Manifest) WriteDatabase() string {
	for name, g := range m.Grants.SQLite {
		if g.Mode == ModeWrite {
			return name
		}
	}
	return ""
}
