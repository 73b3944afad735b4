package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
	"sync"
	"time"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// interrupter breaks off a guest's statements on one connection when their context
// ends. The driver does that itself for a statement that is given a context, with a
// goroutine for each: that costs as much as a short statement, and wakes another
// processor. Here one look-out serves all statements of a context.
//
// Between start and stop, which one goroutine calls, a statement may be broken off;
// what runs outside of them, as the host's own statements do, is not.
type interrupter struct {
	handle uintptr // the connection's sqlite3 *
	watch  *watch
	cancel func() bool // keeps the look-out from beginning
}

// newInterrupter makes the interrupter of a connection. The driver has no name for
// the handle: a version of it without this field cannot be used.
func newInterrupter(conn *sql.Conn) (*interrupter, error) {
	i := &interrupter{}
	err := conn.Raw(func(driverConn any) error {
		handle := reflect.Indirect(reflect.ValueOf(driverConn)).FieldByName("db")
		if !handle.IsValid() || handle.Kind() != reflect.Uintptr {
			return errors.New("the driver's connection has no handle db")
		}
		i.handle = uintptr(handle.Uint())
		return nil
	})
	return i, err
}

// start begins a statement. The error is that of ctx, if it has ended.
func (i *interrupter) start(ctx context.Context) error {
	if err := ctx.Err(); err != nil || ctx.Done() == nil {
		return err
	}
	if i.watch == nil || i.watch.ctx != ctx {
		i.release()
		i.watch = &watch{ctx: ctx, handle: i.handle}
		i.cancel = context.AfterFunc(ctx, i.watch.out)
	}
	i.watch.set(true)
	return nil
}

// stop ends a statement. No interrupt comes after it has returned.
func (i *interrupter) stop() {
	if i.watch != nil {
		i.watch.set(false)
	}
}

// release forgets the context. It must be called before the handle is closed.
func (i *interrupter) release() {
	if i.watch == nil {
		return
	}
	i.cancel()
	i.watch.end()
	i.watch, i.cancel = nil, nil
}

// watch is the look-out for the end of one context.
type watch struct {
	ctx    context.Context
	handle uintptr

	mu      sync.Mutex
	running bool // a statement that may be broken off
	over    bool // nobody is to be broken off any more
}

func (w *watch) set(running bool) {
	w.mu.Lock()
	w.running = running
	w.mu.Unlock()
}

func (w *watch) end() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
}

// interruptAgain is how often a statement is told to end. Once is not enough: SQLite
// forgets what it was told between two statements.
const interruptAgain = 5 * time.Millisecond

// out breaks off what runs, until it is released.
func (w *watch) out() {
	tls := libc.NewTLS() // the connection's own is in use
	defer tls.Close()
	for !w.interrupt(tls) {
		time.Sleep(interruptAgain)
	}
}

// interrupt breaks off the statement that runs, and reports whether the look-out is
// over.
func (w *watch) interrupt(tls *libc.TLS) (over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running && !w.over {
		sqlite3.Xsqlite3_interrupt(tls, w.handle)
	}
	return w.over
}
