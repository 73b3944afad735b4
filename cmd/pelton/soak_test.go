package main

import (
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/pelton-run/pelton/runtime/broker"
)

// TestSoak kills a host again and again, at moments that nobody has chosen, while
// messages are published; then the books are right. PELTON_KILLS says how often.
func TestSoak(t *testing.T) {
	kills := 6
	if n, err := strconv.Atoi(os.Getenv("PELTON_KILLS")); err == nil {
		kills = n
	}
	l := newLedger(t, 1)
	s, err := broker.Start("127.0.0.1:0", t.TempDir(), broker.DefaultSync, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	l.connect(s.URL())
	h := l.host(logFile(t), "--nats", s.URL())
	h.start()
	until(t, "the stream is there", 30*time.Second, func() bool { return l.count("SELECT 1") == 1 && l.exists("WORK") })
	var publishing sync.WaitGroup
	var stop atomic.Bool
	publishing.Go(func() {
		for n := 0; !stop.Load(); n++ {
			l.publish(n)
			time.Sleep(5 * time.Millisecond) // a busy stream, not a flood
		}
	})
	for kill := range kills {
		time.Sleep(time.Duration(300+kill*7919%500) * time.Millisecond) // its life
		h.kill()
		h.start()
		if kill%50 == 49 {
			t.Logf("%d kills, %d messages, %s", kill+1, l.posts(), time.Now().Format(time.TimeOnly))
		}
	}
	t.Cleanup(func() { h.kill() })
	stop.Store(true)
	publishing.Wait()
	l.settled(5 * time.Minute)
	l.check()
	t.Logf("%d kills, %d messages", kills, len(l.good)+len(l.bad)+len(l.exits))
}
