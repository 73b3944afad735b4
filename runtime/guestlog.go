package runtime

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/pelton-run/pelton/host"
	"github.com/pelton-run/pelton/manifests"
)

// guestLog writes the records of a guest to the host's log, within the
// manifest's limits. It is safe for concurrent use.
type guestLog struct {
	log   zerolog.Logger
	line  int // bytes of one record
	rate  int // bytes a second
	stats *Stats

	mu    sync.Mutex
	since time.Time // the second that is being counted
	used  int       // bytes in it
}

func newGuestLog(log zerolog.Logger, l manifests.Limits, stats *Stats) *guestLog {
	return &guestLog{log: log.With().Bool("guest", true).Logger(), line: int(l.LogLine), rate: int(l.Log), stats: stats}
}

// Log writes one record. level is that of log/slog: -4, 0, 4 and 8.
func (g *guestLog) Log(m *host.Message, level int, text string, attrs [][2]string) {
	size := len(text)
	for _, a := range attrs {
		size += len(a[0]) + len(a[1])
	}
	if !g.admit(min(size, g.line)) {
		g.stats.LogDropped.Add(1)
		return
	}
	event := g.log.WithLevel(zerologLevel(level))
	if m != nil {
		event.Str("subject", m.Subject).Uint64("sequence", m.StreamSeq)
	}
	left := g.line
	cut := func(s string) string {
		s = s[:min(len(s), left)]
		left -= len(s)
		return s
	}
	text = cut(text)
	if len(attrs) > 0 {
		fields := zerolog.Dict()
		for _, a := range attrs {
			if left == 0 {
				break
			}
			fields.Str(cut(a[0]), cut(a[1]))
		}
		event.Dict("attrs", fields)
	}
	event.Msg(text)
}

// admit takes bytes out of this second's budget.
func (g *guestLog) admit(n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); now.Sub(g.since) >= time.Second {
		g.since, g.used = now, 0
	}
	if g.used+n > g.rate {
		return false
	}
	g.used += n
	return true
}

func zerologLevel(slog int) zerolog.Level {
	switch {
	case slog >= 8:
		return zerolog.ErrorLevel
	case slog >= 4:
		return zerolog.WarnLevel
	case slog >= 0:
		return zerolog.InfoLevel
	}
	return zerolog.DebugLevel
}
