package host

import (
	"context"
	"time"
)

// Grants is what one function may reach, bound to this host's files, buckets
// and connections. A nil or missing entry is denied. It is shared by all
// invocations of the function and not changed.
type Grants struct {
	Databases map[string]Database
	Write     string // the database that a transaction is opened on, or ""
	HTTP      HTTP
	Blobs     map[string]Blobs
	KV        map[string]KV
	Ask       Asker
	Publish   Publisher
	Images    Images
	Sender    Sender // of the outbox, when there is a database to write
	// Fence refuses everything once another host runs the function; nil for a
	// function that runs on all.
	Fence func() error
}

// Database is one SQLite database.
type Database interface {
	// Query reads on a connection that cannot write.
	Query(ctx context.Context, query string, args []any, limit RowLimit) (*Rows, error)
	// Begin takes the database's one writer, waiting for it as long as ctx lives.
	Begin(ctx context.Context) (Tx, error)
	// Raise says that everything of a source up to a sequence is done: the inbox
	// need not keep it one by one. A later transaction takes note of it.
	Raise(source Source, sequence uint64)
	// Unsent returns rows of a function's outbox above an id, in their order, up to
	// a page.
	Unsent(ctx context.Context, function string, above int64) ([]Unsent, error)
	// Sent says that a function's outbox rows up to an id are stored where they
	// belong. A later transaction forgets them; Tidy does at once.
	Sent(function string, upTo int64)
	Tidy(ctx context.Context) error
	// Backlog counts the rows of a function's outbox above an id.
	Backlog(ctx context.Context, function string, above int64) (int, error)
	// Identity is made with the file and goes where a copy of it goes.
	Identity() string
	// Position is how far the inbox is with a source.
	Position(ctx context.Context, s Source) (Position, error)
}

// Tx is the transaction of one invocation. It is used by one goroutine.
type Tx interface {
	Exec(ctx context.Context, query string, args []any) (Result, error)
	// ExecMany runs a statement once for each row of width arguments: all of them,
	// or none when one is refused. RowsAffected is their sum.
	ExecMany(ctx context.Context, query string, width int, args []any) (Result, error)
	Query(ctx context.Context, query string, args []any, limit RowLimit) (*Rows, error)
	// Savepoint opens the savepoint of a delivery, Release keeps and Restore
	// undoes what was done since.
	Savepoint(ctx context.Context) error
	Release(ctx context.Context) error
	Restore(ctx context.Context) error
	// Known says which messages of a batch, all of one durable, are done already,
	// nil for none of them.
	Known(ctx context.Context, function string, messages []*Message) ([]bool, error)
	// Seal notes for the commit which messages are done, and what is to be sent
	// after it.
	Seal(ctx context.Context, function string, done []*Message, send []*Outgoing) error
	// Lost reports whether the transaction was undone under the handler.
	Lost() bool
	// Undo takes back everything, and goes on in a transaction that is new.
	Undo(ctx context.Context) error
	// Commit and Rollback end the transaction and give the writer back.
	Commit(ctx context.Context) error
	Rollback() error
}

// RowLimit bounds the answer to a query.
type RowLimit struct {
	Rows  int
	Bytes int64
}

// Rows is the answer to a query. Values are nil, int64, float64, string or []byte.
type Rows struct {
	Columns []string
	Values  []any // row after row
}

// Result is the answer to a statement.
type Result struct {
	LastInsertID int64
	RowsAffected int64
}

// HTTP sends requests to the origins that are granted.
type HTTP interface {
	Do(ctx context.Context, r *Request) (*HTTPResponse, error)
	// Keyed reports whether some request is sent with its Key.
	Keyed() bool
}

// Request is one HTTP request of a guest.
type Request struct {
	Method  string
	URL     string
	Headers [][2]string
	Body    []byte
	Key     string // the same when the message is handled again and asks the same; "" unless HTTP is Keyed
}

// HTTPResponse is the answer to a request, its body read whole.
type HTTPResponse struct {
	Status  int
	Headers [][2]string
	Body    []byte
}

// Blobs is one blob store.
type Blobs interface {
	// Put stores a blob and returns its ETag. Conflict says that If does not hold.
	Put(ctx context.Context, p *BlobPut) (etag string, err error)
	// Get reads a blob, or a part of it, of no more than limit bytes.
	Get(ctx context.Context, key string, part Range, limit int64) (*Blob, error)
	Stat(ctx context.Context, key string) (*BlobInfo, error)
	Delete(ctx context.Context, key string) error
	// List returns up to limit blobs whose keys begin with prefix and are above
	// after, in the order of keys. They have no metadata.
	List(ctx context.Context, prefix, after string, limit int) ([]BlobInfo, error)
}

// BlobPut is a blob to be stored.
type BlobPut struct {
	Key         string
	ContentType string      // "" for that of the key's extension
	Metadata    [][2]string // names in lower case
	If          string      // the ETag that is to be replaced, IfNew, or "" for whatever is there
	Data        []byte
}

// IfNew is the condition that there is no blob yet.
const IfNew = "*"

// Range is a part of a blob. A Length of 0 goes to the end.
type Range struct{ Offset, Length int64 }

// Of returns the length of the part of a blob of so many bytes. It refuses one that
// begins behind the end.
func (r Range) Of(size int64) (length int64, err error) {
	if r.Offset < 0 || r.Length < 0 || r.Offset > size {
		return 0, Errorf(Invalid, "blob: a part from byte %d is asked for, of %d", r.Offset, size)
	}
	if rest := size - r.Offset; r.Length == 0 || r.Length > rest {
		return rest, nil
	}
	return r.Length, nil
}

// Blob is a stored object with its content, or the part that was asked for.
type Blob struct {
	BlobInfo
	Data []byte
}

// BlobInfo describes a stored object.
type BlobInfo struct {
	Key         string
	ContentType string
	Size        int64 // of the whole
	Modified    time.Time
	ETag        string // another one with other content
	Metadata    [][2]string
}

// KV is one key-value bucket.
type KV interface {
	Get(ctx context.Context, key string) (*Entry, error)
	Put(ctx context.Context, key string, value []byte) (uint64, error)
	Create(ctx context.Context, key string, value []byte) (uint64, error)
	Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	Delete(ctx context.Context, key string) error
	Keys(ctx context.Context, prefix string, limit int) ([]string, error)
}

// Entry is one value of a key-value bucket.
type Entry struct {
	Value    []byte
	Revision uint64
}

// Asker sends requests to the services that are granted.
type Asker interface {
	// Check refuses what could never be asked.
	Check(q *Question) error
	// Ask waits for one answer until ctx ends. Unavailable says that nobody answers.
	Ask(ctx context.Context, q *Question) (*ServiceAnswer, error)
}

// Question is a request to a service of NATS.
type Question struct {
	Subject string
	Headers map[string][]string
	Data    []byte
	Timeout time.Duration // 0 for as long as the handler may run
}

// ServiceAnswer is what a service said.
type ServiceAnswer struct {
	Headers [][2]string
	Data    []byte
}

// Publisher publishes to the subjects that are granted.
type Publisher interface {
	// Check refuses what could never be published: a subject that is not
	// granted or not literal, reserved headers, a message too large.
	Check(ctx context.Context, m *Outgoing) error
	// Publish stores the message and returns where. Check has passed.
	Publish(ctx context.Context, m *Outgoing) (PubAck, error)
}

// Sender sends what lay in an outbox.
type Sender interface {
	// Send publishes messages in their order, and returns how many of them, from
	// the first on, are stored in their streams. An error says why the rest is not.
	Send(ctx context.Context, messages []*Outgoing) (stored int, err error)
}

// Outgoing is a message to publish.
type Outgoing struct {
	Subject string
	Headers map[string][]string
	Data    []byte
	MsgID   string // for the stream's duplicate window; "" in an outbox leaves it to the row's number
	Core    bool   // published without a stream; Check sets it
}

// Unsent is a row of an outbox.
type Unsent struct {
	ID      int64 // counts up, and is not used again
	Message *Outgoing
}

// PubAck says where a message was stored. The zero value is a message that was
// published without a stream, or that waits for the transaction's commit.
type PubAck struct {
	Stream    string
	Sequence  uint64
	Duplicate bool
}

// Images decodes, resizes and encodes pictures.
type Images interface {
	Render(ctx context.Context, source []byte, targets []Target) (*Rendered, error)
}

// Target is one picture to make. A side of 0 follows the other; a picture is
// never enlarged.
type Target struct {
	Width, Height int
	Format        string // webp, jpeg or png
	Quality       int    // 1 to 100; 0 is the host's default
}

// Rendered is what became of a picture.
type Rendered struct {
	Format        string // of the source: jpeg, png, gif or webp
	Width, Height int    // of the source, upright
	Pictures      []Picture
}

// Picture is one encoded picture.
type Picture struct {
	Width, Height int
	Data          []byte
}
