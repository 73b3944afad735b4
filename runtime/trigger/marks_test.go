package trigger

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/pelton-run/pelton/runtime"
)

func marked(sequences ...uint64) (batch []runtime.Delivery) {
	for _, n := range sequences {
		d := &delivery{}
		d.message.StreamSeq = n
		batch = append(batch, d)
	}
	return batch
}

// What handlers were at is in the file while the process still has it mapped, as
// it is when that is killed; each is kept once, whatever becomes of the rest, and
// also when the next process has fewer workers.
func TestMarks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f", "S.d")
	const created = 5
	open := func(created int64, workers, each int, want string) *marks {
		t.Helper()
		m, left, err := openMarks(path, created, workers, each)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.close() })
		got := ""
		for _, s := range left {
			got += fmt.Sprintf("%d %v,", s.sequence, s.alone)
		}
		if got != want {
			t.Errorf("left behind is %q, want %q", got, want)
		}
		return m
	}
	m := open(created, 3, 4, "")
	m.begin(0, marked(1, 2), false)
	m.begin(1, marked(3), false)
	m.end(1)
	m.begin(2, marked(7), true)
	m = open(created, 1, 2, "1 false,2 false,7 true,")
	left, err := readMarks(path, created)
	if err != nil {
		t.Fatal(err)
	}
	m.kept(left[0])
	m = open(created, 1, 2, "2 false,7 true,")
	m.clear(created)
	m = open(created, 2, 2, "")
	m.begin(1, marked(9), false)
	open(created+1, 2, 2, "") // the stream is another
	open(created, 2, 2, "")
}
