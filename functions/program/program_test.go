package program

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the outcomes anew")

const golden = "testdata/outcomes.txt"

func operate(ctx context.Context, d time.Duration, v int) (int, error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return Answer(v), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// The programs have the outcomes that the guest's are held to, whatever the
// order that things happen in.
func TestOutcomes(t *testing.T) {
	const count = 1000
	lines := make([]string, count)
	var group sync.WaitGroup
	places := make(chan struct{}, 100)
	for seed := range lines {
		group.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			outcome := Run(t.Context(), uint64(seed), operate)
			lines[seed] = fmt.Sprintf("%x %d", sha256.Sum256([]byte(outcome)), len(outcome))
		})
	}
	group.Wait()
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the outcomes are not those of %s; run with -update if the programs were changed", golden)
	}
}
