package engine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// bell is the file descriptor of the doorbell: a stream that can be read when
// the guest has nothing to do. A guest whose language has a scheduler parks on
// it, so that the scheduler itself finds out, and tells in poll_oneoff, that
// nothing else can run and when the next timer is due. See sdk/ABI.md.
const bell = 1 << 20

// The errnos and layouts of WASI preview 1 (snapshot/preview1/witx/typenames).
const (
	wasiOK    = 0
	wasiAgain = 6
	wasiBadf  = 8
	wasiInval = 28

	subscriptionSize = 48
	eventSize        = 32
	eventClock       = 0
	eventRead        = 1
	absolute         = 1 // flag of a clock subscription
	realtime         = 0 // clock id
	nonBlocking      = 4 // flag of a file descriptor
	characterDevice  = 2
	maxSubscriptions = 1 << 16
)

// wasiFunction is a function of WASI that is ours.
type wasiFunction struct {
	params []api.ValueType
	call   func(in *instance, stack []uint64) uint64
}

// wasiFunctions are those that wait or work, which end with the call, and those
// of the doorbell.
var wasiFunctions = map[string]wasiFunction{
	"poll_oneoff":         {types(i32, i32, i32, i32), pollOneoff},
	"random_get":          {types(i32, i32), randomGet},
	"fd_write":            {types(i32, i32, i32, i32), fdWrite},
	"fd_read":             {types(i32, i32, i32, i32), fdRead},
	"fd_fdstat_get":       {types(i32, i32), fdstatGet},
	"fd_fdstat_set_flags": {types(i32, i32), func(*instance, []uint64) uint64 { return wasiOK }},
	"fd_close":            {types(i32), func(*instance, []uint64) uint64 { return wasiOK }}, // isolation could not undo it
}

// fileFunctions are those about files, of which a guest has none.
var fileFunctions = map[string][]api.ValueType{
	"fd_advise":               types(i32, i64, i64, i32),
	"fd_allocate":             types(i32, i64, i64),
	"fd_datasync":             types(i32),
	"fd_fdstat_set_rights":    types(i32, i64, i64),
	"fd_filestat_get":         types(i32, i32),
	"fd_filestat_set_size":    types(i32, i64),
	"fd_filestat_set_times":   types(i32, i64, i64, i32),
	"fd_pread":                types(i32, i32, i32, i64, i32),
	"fd_prestat_get":          types(i32, i32),
	"fd_prestat_dir_name":     types(i32, i32, i32),
	"fd_pwrite":               types(i32, i32, i32, i64, i32),
	"fd_readdir":              types(i32, i32, i32, i64, i32),
	"fd_renumber":             types(i32, i32),
	"fd_seek":                 types(i32, i64, i32, i32),
	"fd_sync":                 types(i32),
	"fd_tell":                 types(i32, i32),
	"path_create_directory":   types(i32, i32, i32),
	"path_filestat_get":       types(i32, i32, i32, i32, i32),
	"path_filestat_set_times": types(i32, i32, i32, i32, i64, i64, i32),
	"path_link":               types(i32, i32, i32, i32, i32, i32, i32),
	"path_open":               types(i32, i32, i32, i32, i32, i64, i64, i32, i32),
	"path_readlink":           types(i32, i32, i32, i32, i32, i32),
	"path_remove_directory":   types(i32, i32, i32),
	"path_rename":             types(i32, i32, i32, i32, i32, i32),
	"path_symlink":            types(i32, i32, i32, i32, i32),
	"path_unlink_file":        types(i32, i32, i32),
	"sock_accept":             types(i32, i32, i32),
	"sock_recv":               types(i32, i32, i32, i32, i32, i32),
	"sock_send":               types(i32, i32, i32, i32, i32),
	"sock_shutdown":           types(i32, i32),
}

// instantiateWASI makes the module of WASI functions: ours, and wazero's that only
// tell something.
func instantiateWASI(ctx context.Context, r wazero.Runtime) error {
	b := r.NewHostModuleBuilder(wasiModule)
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(b)
	for name, params := range fileFunctions {
		// There are no files: what wazero does until it has found that out takes
		// as long as a guest likes.
		fn := api.GoModuleFunc(func(_ context.Context, _ api.Module, stack []uint64) { stack[0] = wasiBadf })
		b.NewFunctionBuilder().WithGoModuleFunction(fn, params, types(i32)).Export(name)
	}
	for name, f := range wasiFunctions {
		fn := api.GoModuleFunc(func(ctx context.Context, m api.Module, stack []uint64) {
			in := instanceOf(ctx, m)
			in.calling = name
			in.worked(0)
			stack[0] = f.call(in, stack)
		})
		b.NewFunctionBuilder().WithGoModuleFunction(fn, f.params, types(i32)).Export(name)
	}
	_, err := b.Instantiate(ctx)
	return err
}

// fdstatGet says what a file descriptor is: the three of the program, and the
// doorbell, which does not block.
func fdstatGet(in *instance, stack []uint64) uint64 {
	fd, flags := uint32(stack[0]), byte(0)
	if fd > 2 && fd != bell {
		return wasiBadf
	}
	if fd == bell {
		flags = nonBlocking
	}
	stat := in.memory(stack[1], 24)
	clear(stat)
	stat[0], stat[2] = characterDevice, flags
	binary.LittleEndian.PutUint64(stat[8:], math.MaxUint64) // rights
	return wasiOK
}

// maxWrite bounds the bytes of one fd_write, and maxVectors its pieces: what is
// left a guest writes with the next one.
const (
	maxWrite   = 64 << 10
	maxVectors = 1024
)

// fdWrite takes the program's output and errors, as lines of the log.
func fdWrite(in *instance, stack []uint64) uint64 {
	fd, count := uint32(stack[0]), uint32(stack[2])
	if fd != 1 && fd != 2 {
		return wasiBadf
	}
	if count > maxVectors {
		return wasiInval
	}
	vectors := in.memory(stack[1], uint64(count)*8)
	written := in.memory(stack[3], 4)
	n := 0
	for ; len(vectors) > 0 && n < maxWrite; vectors = vectors[8:] {
		at, size := binary.LittleEndian.Uint32(vectors), binary.LittleEndian.Uint32(vectors[4:])
		b := in.memory(uint64(at), uint64(min(size, uint32(maxWrite-n))))
		in.output.Write(b)
		n += len(b)
	}
	binary.LittleEndian.PutUint32(written, uint32(n))
	return wasiOK
}

// randomGet fills the guest's bytes, a piece at a time so that its end is seen.
func randomGet(in *instance, stack []uint64) uint64 {
	for b := in.memory(stack[0], stack[1]); len(b) > 0; {
		piece := b[:min(len(b), maxWrite)]
		rand.Read(piece) // it never fails
		b = b[len(piece):]
		in.worked(16 * len(piece)) // it is slower than copying
	}
	return wasiOK
}

// fdRead reads nothing from the program's input. From the doorbell it reads the
// nanoseconds until the guest's next timer once the bell has rung.
func fdRead(in *instance, stack []uint64) uint64 {
	fd := uint32(stack[0])
	read := in.memory(stack[3], 4)
	switch {
	case fd == bell && !in.rung:
		return wasiAgain
	case fd == bell:
		if uint32(stack[2]) == 0 {
			return wasiInval
		}
		vector := in.memory(stack[1], 8)
		at, size := binary.LittleEndian.Uint32(vector), binary.LittleEndian.Uint32(vector[4:])
		if size < 8 {
			return wasiInval
		}
		in.rung = false
		binary.LittleEndian.PutUint64(in.memory(uint64(at), 8), uint64(in.timer))
		binary.LittleEndian.PutUint32(read, 8)
		return wasiOK
	case fd == 0:
		binary.LittleEndian.PutUint32(read, 0)
		return wasiOK
	}
	return wasiBadf
}

// pollOneoff waits for the first of a guest's clocks; it ends early when the
// call's time is over. With the doorbell among what is waited for it does not wait.
func pollOneoff(in *instance, stack []uint64) uint64 {
	count := uint32(stack[2])
	if count == 0 || count > maxSubscriptions {
		return wasiInval
	}
	subs := in.memory(stack[0], uint64(count)*subscriptionSize)
	events := in.memory(stack[1], uint64(count)*eventSize)
	written := in.memory(stack[3], 4)
	p := readPoll(subs, time.Now())
	rung := p.bell != nil && p.wait != 0
	if rung { // nothing can run: the guest is told at once, and decides what to do
		in.timer, in.rung = p.wait, true
	}
	if p.bell == nil && p.wait > 0 && !p.now {
		in.nap(p.wait)
	}
	n := 0
	put := func(sub []byte, errno uint16, kind byte) {
		e := events[n*eventSize : (n+1)*eventSize]
		clear(e)
		copy(e, sub[:8])
		binary.LittleEndian.PutUint16(e[8:], errno)
		e[10] = kind
		n++
	}
	for i := 0; i < len(subs); i += subscriptionSize {
		switch sub := subs[i : i+subscriptionSize]; {
		case sub[8] == eventClock:
			if !rung {
				put(sub, wasiOK, eventClock)
			}
		case binary.LittleEndian.Uint32(sub[16:]) != bell:
			put(sub, wasiBadf, sub[8])
		case rung:
			put(sub, wasiOK, eventRead)
		}
	}
	binary.LittleEndian.PutUint32(written, uint32(n))
	return wasiOK
}

// poll is what a guest waits for.
type poll struct {
	wait time.Duration // until the first clock; negative without one
	bell []byte        // the doorbell's subscription
	now  bool          // something else is asked for, which is answered at once
}

func readPoll(subs []byte, now time.Time) poll {
	p := poll{wait: -1}
	for ; len(subs) > 0; subs = subs[subscriptionSize:] {
		if subs[8] != eventClock {
			if binary.LittleEndian.Uint32(subs[16:]) == bell && subs[8] == eventRead {
				p.bell = subs[:subscriptionSize]
			} else {
				p.now = true
			}
			continue
		}
		wait := time.Duration(min(binary.LittleEndian.Uint64(subs[24:]), math.MaxInt64))
		if binary.LittleEndian.Uint16(subs[40:])&absolute != 0 {
			since := nanotime()
			if binary.LittleEndian.Uint32(subs[16:]) == realtime {
				since = time.Duration(now.UnixNano())
			}
			wait = max(0, wait-since)
		}
		if p.wait < 0 || wait < p.wait {
			p.wait = wait
		}
	}
	return p
}

// nanotime is the guests' monotonic clock; its beginning says nothing.
func nanotime() time.Duration { return time.Since(epoch) }

var epoch = time.Now()

// nap is a guest's sleep: it ends early when the call's time is over. One that
// sleeps on then is let to, for so long at a time.
func (in *instance) nap(d time.Duration) {
	const late = 10 * time.Millisecond
	in.pause(func() {
		for end := time.Now().Add(d); ; {
			now := time.Now()
			if !now.Before(in.lookAt) {
				in.mustEnd(in.look(now))
			}
			over := in.holder != nil && !in.holder.ended.IsZero()
			until := in.lookAt
			if end.Before(until) {
				until = end
			}
			if over {
				until = now.Add(min(late, end.Sub(now)))
			}
			if !now.Before(end) {
				return
			}
			time.Sleep(until.Sub(now))
			if over {
				return
			}
		}
	})
}

// await waits for news of the guest's calls, for no longer than d if that is not
// negative.
func (in *instance) await(d time.Duration) {
	if d < 0 && !in.openTickets() && !in.news() {
		panic(errHopeless)
	}
	in.sleep(d)
}

var errHopeless = fmt.Errorf("%w: the handler waits for what nothing can bring about: no operation is under way and no timer is set", ErrDeadlock)

// sleep waits for news of the call, for no longer than d if that is not
// negative. A call whose time is over is told so once; after its grace the guest is
// stopped.
func (in *instance) sleep(d time.Duration) {
	var end <-chan time.Time
	if d >= 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		end = timer.C
	}
	in.pause(func() {
		for !in.news() {
			look := time.NewTimer(time.Until(in.lookAt))
			select {
			case <-in.wake:
			case <-end:
				look.Stop()
				return
			case <-look.C:
			}
			look.Stop()
			if now := time.Now(); !now.Before(in.lookAt) {
				in.mustEnd(in.look(now))
			}
		}
	})
}
