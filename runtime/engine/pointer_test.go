package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/api"
)

// pointers says where each function takes a pointer with a length behind it.
var pointers = map[string][]int{
	"delivery_read": {2}, "delivery_begin": nil, "delivery_end": {3}, "respond": {1}, "log": {2}, "last_error": {0}, "result": {0},
	"op_result": {1}, "op_wait": {1}, "op_cancel": nil, "ready": {0}, "await": nil,
	"buffer_new": {1}, "buffer_len": nil, "buffer_read": {3}, "buffer_close": nil,
	"sql_exec": {1, 3}, "sql_exec_many": {1, 3}, "sql_query": {1, 3}, "sql_query_start": {1}, "http_start": {1}, "http_start_all": {1},
	"blob_put_start": {1}, "blob_get_start": {1}, "blob_stat_start": {1}, "blob_delete_start": {1}, "blob_list_start": {1},
	"kv_get_start": {1}, "kv_put_start": {1}, "kv_create_start": {1}, "kv_update_start": {1}, "kv_delete_start": {1}, "kv_keys_start": {1},
	"publish_start": {1}, "request_start": {1}, "image_start": {1},
}

// batchOfFirst is the id of an instance's first batch: initialising has the one
// before.
const batchOfFirst = 2

// calling makes a module that calls a function with its pointers and lengths.
func calling(name string, ptr, size uint32) *assembly {
	f, body := hostFunctions[name], []byte{}
	for i, typ := range f.params {
		v := int64(0)
		for _, at := range pointers[name] {
			switch i {
			case at:
				v = int64(int32(ptr))
			case at + 1:
				v = int64(int32(size))
			}
		}
		switch {
		case i == 0 && f.by == byID:
			v = batchOfFirst
		case name == "delivery_read" && i == 0:
			v = batchOfFirst + 1
		case name == "delivery_read" && i == 1, name == "delivery_end" && i == 1:
			v = 1
		}
		op := byte(0x41)
		if typ == api.ValueTypeI64 {
			op = 0x42
		}
		body = signed(append(body, op), v)
	}
	body = append(body, callOf(0)...)
	for range f.results {
		body = append(body, 0x1A)
	}
	return &assembly{imports: []string{name}, bodies: [][]byte{body}}
}

func signed(b []byte, v int64) []byte {
	for {
		low := byte(v) & 0x7F
		v >>= 7
		if v == 0 && low&0x40 == 0 || v == -1 && low&0x40 != 0 {
			return append(b, low)
		}
		b = append(b, low|0x80)
	}
}

// SEC-5: a pointer outside of the guest's memory ends the call, with the
// function, the pointer and the length; nothing is allocated for it.
func TestWildPointers(t *testing.T) {
	e := newEngine(t)
	all := manifest(t, grantAll+"  image: {}\n  request: [svc.>]\n")
	for name := range hostFunctions {
		if _, known := pointers[name]; !known {
			t.Errorf("%s is not in the table of this test", name)
		}
	}
	for name, at := range pointers {
		tickets := strings.HasPrefix(name, "op_") // no ticket is open: refused before
		for _, wild := range [][2]uint32{{0xFFFFFFF0, 0xFFFFFFFF}, {0, 0xFFFFFFFF}, {1<<16 - 1, 2}, {0xFFFFFFFF, 1 << 31}, {0, 0}, {1 << 16, 0}} {
			module, err := e.Compile(t.Context(), NewBinary(calling(name, wild[0], wild[1]).bytes()), all)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			p, err := NewPool(module, Settings{Max: 1, Memory: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err = invoke(t, p, time.Second, "x")
			runtime.ReadMemStats(&after)
			says := fmt.Sprintf("%s: pointer %d with length %d", name, wild[0], wild[1])
			fine := wild[1] == 0 || len(at) == 0 || tickets || name == "await"
			if name == "await" {
				fine = errors.Is(err, ErrDeadlock) || err == nil
				err = nil
			}
			if fine && err != nil || !fine && (!errors.Is(err, ErrTrap) || !strings.Contains(err.Error(), says)) {
				t.Errorf("%s(%#x, %#x): %v, want a trap that says %q", name, wild[0], wild[1], err, says)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 10<<20 {
				t.Errorf("%s(%#x, %#x) allocated %d bytes", name, wild[0], wild[1], took)
			}
			p.Close()
			module.Close(t.Context())
		}
	}
}

// The WASI functions of the doorbell are as careful.
func TestWildPolls(t *testing.T) {
	if got := readPoll(make([]byte, 3*subscriptionSize), time.Now()); got.wait != 0 || got.bell != nil {
		t.Errorf("three clocks of nothing = %+v", got)
	}
	sub := make([]byte, subscriptionSize)
	sub[8] = eventRead
	binary.LittleEndian.PutUint32(sub[16:], bell)
	if got := readPoll(sub, time.Now()); got.bell == nil || got.wait >= 0 || got.now {
		t.Errorf("the doorbell = %+v", got)
	}
	if got := drop([]int{1, 2, 3}, 2); !slices.Equal(got, []int{3}) {
		t.Errorf("drop = %v", got)
	}
}
