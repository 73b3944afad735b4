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
func (p *policy) authorize(action sqlite.AuthorizerActionCode, arg1, arg2, _, _ string) sqlite.AuthorizerReturnCode {
	if p.host.Load() {
		return sqlite.AuthorizerOK
	}
	if what := forbidden(action, arg1, arg2); what != "" {
		p.denied.Store(&what)
		return sqlite.AuthorizerDeny
	}
	return sqlite.AuthorizerOK
}

// forbidden names what a guest's statement wants and must not have.
func forbidden(action sqlite.AuthorizerActionCode, arg1, arg2 string) string {
	switch action {
	case sqlite.AuthTransaction:
		return arg1 + ": transactions belong to the host"
	case sqlite.AuthSavepoint:
		return "SAVEPOINT: transactions belong to the host"
	case sqlite.AuthAttach, sqlite.AuthDetach:
		return "ATTACH and DETACH"
	case sqlite.AuthPragma:
		if arg1 == "data_version" { // FTS5 reads it on its own account
			return ""
		}
		return "PRAGMA " + arg1
	case sqlite.AuthFunction:
		if strings.EqualFold(arg2, "load_extension") {
			return "load_extension"
		}
	case sqlite.AuthAlterTable:
		return "ALTER TABLE: changes of tables belong in migrations"
	case sqlite.AuthCreateTempIndex, sqlite.AuthCreateTempTable, sqlite.AuthCreateTempTrigger, sqlite.AuthCreateTempView:
		return "temporary objects"
	}
	for _, name := range []string{arg1, arg2} {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "_pelton_") || lower == "sqlite_dbpage" {
			return name + ", which is Pelton's own"
		}
	}
	return ""
}
