package up

import (
	"strings"
	"testing"
)

// A function that publishes to what triggers it comes to an end, with and without a
// transaction: the last message of the chain is a dead letter that says why.
func TestLoopEnds(t *testing.T) {
	const manifest = `
triggers: [{stream: LOOP, filter_subjects: [loop.NAME]}]
limits: {hops: 4}
`
	f := newFolder(t).write("streams.yaml", "streams: [{name: LOOP, subjects: [loop.>]}]\n")
	for name, mode := range map[string]string{"plain": "read", "writing": "write"} { // the guest can ask for everything, so all is granted
		f.add(name, "testers/conformance", "name: "+name+strings.ReplaceAll(manifest, "NAME", name)+
			"grants: {publish: [loop."+name+"], sqlite: {test: {mode: "+mode+"}}, http: [{public: true}], blob: {test: {mode: read}}, kv: {TEST: {mode: write, create: true}}}\n")
	}
	b := start(t, f, nil)
	for _, name := range []string{"plain", "writing"} {
		b.publish("loop."+name, "again")
		figures := b.done(name, 5)
		if figures.Acked != 4 || figures.DeadLetters != 1 {
			t.Errorf("%s: %d acked and %d dead letters, want 4 and 1", name, figures.Acked, figures.DeadLetters)
		}
	}
	s, err := b.js.Stream(t.Context(), "LOOP")
	if err != nil {
		t.Fatal(err)
	}
	last, err := s.GetLastMsgForSubject(t.Context(), "loop.plain")
	if err != nil || last.Header.Get("Pelton-Hops") != "4" {
		t.Errorf("the last message has %v, %v; want 4 hops", last, err)
	}
	letters, err := b.js.Stream(t.Context(), "DLQ")
	if err != nil {
		t.Fatal(err)
	}
	letter, err := letters.GetLastMsgForSubject(t.Context(), "dlq.loop.writing")
	if err != nil || !strings.Contains(letter.Header.Get("Pelton-Error"), "limits.hops is 4") || letter.Header.Get("Pelton-Hops") != "4" {
		t.Errorf("the dead letter is %v, %v; want it to name limits.hops", letter, err)
	}
}
