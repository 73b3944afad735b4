package host

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/pelton-run/pelton/bench"
	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/runtime/engine"
)

// calls is how often the small guest calls the host for one message.
const calls = 100_000

// small is a guest as a C compiler would make it: pelton_handle begins its delivery,
// asks for the length of no buffer a hundred thousand times, and acks.
func small() []byte {
	section := func(id byte, items ...[]byte) []byte {
		body := binary.AppendUvarint(nil, uint64(len(items)))
		for _, i := range items {
			body = append(body, i...)
		}
		return append(binary.AppendUvarint([]byte{id}, uint64(len(body))), body...)
	}
	name := func(s string) []byte { return append(binary.AppendUvarint(nil, uint64(len(s))), s...) }
	imported := func(f string, typ byte) []byte { return append(append(append(name("pelton"), name(f)...), 0), typ) }
	exported := func(f string, kind, index byte) []byte { return append(name(f), kind, index) }
	const i32, i64 = 0x7F, 0x7E
	code := []byte{
		1, 1, i32, // one local: 3
		0x20, 1, 0x10, 1, 0x1A, // delivery_begin(first)
		0x03, 0x40, // loop
		0x20, 1, 0x41, 0, 0x10, 0, 0x1A, // buffer_len(first, 0)
		0x20, 3, 0x41, 1, 0x6A, 0x22, 3, // count
		0x41,
	}
	for n := calls; ; n >>= 7 { // signed LEB128
		if n < 64 {
			code = append(code, byte(n))
			break
		}
		code = append(code, byte(n&0x7F)|0x80)
	}
	code = append(code, 0x49, 0x0D, 0, 0x0B, // until there are enough
		0x20, 1, 0x41, 1, 0x42, 0, 0x41, 0, 0x41, 0, 0x10, 2, 0x1A, // delivery_end(first, ack, 0, "", 0)
		0x42, 0, 0x0B)
	body := append(binary.AppendUvarint(nil, uint64(len(code))), code...)
	out := []byte{0, 'a', 's', 'm', 1, 0, 0, 0}
	out = append(out, section(1,
		[]byte{0x60, 2, i32, i32, 1, i32}, []byte{0x60, 1, i32, 1, i32}, []byte{0x60, 5, i32, i32, i64, i32, i32, 1, i32},
		[]byte{0x60, 0, 0}, []byte{0x60, 3, i32, i32, i32, 1, i64})...)
	out = append(out, section(2, imported("buffer_len", 0), imported("delivery_begin", 1), imported("delivery_end", 2))...)
	out = append(out, section(3, []byte{3}, []byte{4})...)
	out = append(out, section(5, []byte{0, 1})...)
	out = append(out, section(7, exported("memory", 2, 0), exported("pelton_abi_1", 0, 3), exported("pelton_handle", 0, 4))...)
	return append(out, section(10, []byte{2, 0, 0x0B}, body)...)
}

// BenchmarkBorder measures a host call that does nothing, from a small guest and
// from a Go guest.
func BenchmarkBorder(b *testing.B) {
	const manifest = "name: f\ntriggers: [{stream: S}]\n"
	pool := newPool(b, small(), manifest, engine.Settings{Max: 1})
	gopher := newPool(b, guest(b, "testers/statements"), manifest+"grants: {sqlite: {test: {mode: write}}}\n", engine.Settings{Max: 1})
	run := func(p *engine.Pool, body string) float64 {
		var all []time.Duration
		for range bench.Rounds {
			all = append(all, invoke(b, p, &host.Grants{}, body))
		}
		return micros(bench.Median(all), calls) * 1000
	}
	ns := run(pool, "")
	report.AddTime("host call that does nothing, small guest, vs. 150 ns", "ns", ns, 150, 1)
	report.AddTime("host call that asks for news, Go guest, vs. the same", "ns", run(gopher, fmt.Sprintf("nothing %d", calls)), 150, 0)
	b.ReportMetric(ns, "ns/call")
}
