package sqlite

import (
	"strings"
	"sync/atomic"

	"modernc.org/sqlite"
)

// policy decides what may be compiled on one connection. The host's own
// statements pass; a guest's are checked.
type policy struct {
	host   atomic.Bool            // whether the host is preparing
	denied atomic.Pointer[string] // what was refused last, for the error's text
	writer bool                   // whether the connection is the one that writes, which one goroutine uses at a time
	drops  bool                   // whether the statement that it prepares drops something
}

// asHost runs fn with the host's rights. The connection has one user at a time.
func (p *policy) asHost(fn func() error) error {
	p.host.Store(true)
	defer p.host.Store(false)
	return fn()
}

// takeDenied returns what was refused since the last call, "" if nothing was.
func (p *policy) takeDenied() string {
	if s := p.denied.Swap(nil); s != nil {
		return *s
	}
	return ""
}

// authorize is the connection's authorizer; see
// https://www.sqlite.org/c3ref/set_authorizer.html for its arguments.
func (p *policy) authorize(action sqlite.AuthorizerActionCode, arg1, arg2, database, _ string) sqlite.AuthorizerReturnCode {
	if p.host.Load() {
		return sqlite.AuthorizerOK
	}
	what := refused(action, arg1, arg2, database)
	if what == "" {
		what = p.listing(action, arg1, arg2)
	}
	if what != "" {
		p.denied.Store(&what)
		return sqlite.AuthorizerDeny
	}
	return sqlite.AuthorizerOK
}

// listing names the lists of tables when a statement reads them: they have the
// host's. What SQLite itself reads there to create or drop something is none of
// the statement's business.
func (p *policy) listing(action sqlite.AuthorizerActionCode, table, column string) string {
	switch action {
	case sqlite.AuthDropTable, sqlite.AuthDropIndex, sqlite.AuthDropView, sqlite.AuthDropTrigger, sqlite.AuthDropVTable:
		p.drops = p.writer
	case sqlite.AuthRead:
		lower := strings.ToLower(table)
		list := lower == "sqlite_master" || lower == "sqlite_schema" || lower == "sqlite_sequence"
		if list && !p.drops && column != "ROWID" {
			return table + ", which lists what is Pelton's own"
		}
	}
	return ""
}
