// Package bench measures Pelton against native Go doing the same work, on the
// same server, in the same run. Each figure is the median of interleaved rounds.
package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Rounds is how often each side of a comparison runs, by turns.
const Rounds = 7

// Figure is one line of a report. Its JSON is part of the interface.
type Figure struct {
	Name     string  `json:"name"` // says what is better: "(higher)" or "(lower)"
	Ours     float64 `json:"ours"`
	Baseline float64 `json:"baseline"`
	Unit     string  `json:"unit"`
	Ratio    float64 `json:"ratio"` // ours / baseline
	Goal     float64 `json:"goal"`  // of the ratio; 0 for none
	OK       bool    `json:"ok"`
}

// Report collects the figures of one target. It is safe for concurrent use.
type Report struct {
	mu      sync.Mutex
	figures []Figure
}

// Add records a figure that is better the higher it is, and returns it.
func (r *Report) Add(name, unit string, ours, baseline, goal float64) Figure {
	f := Figure{Name: name + " (higher)", Ours: ours, Baseline: baseline, Unit: unit, Ratio: ours / baseline, Goal: goal}
	f.OK = goal == 0 || f.Ratio >= goal
	return r.keep(f)
}

// AddTime records a figure that is better the lower it is, and returns it.
func (r *Report) AddTime(name, unit string, ours, baseline, goal float64) Figure {
	f := Figure{Name: name + " (lower)", Ours: ours, Baseline: baseline, Unit: unit, Ratio: ours / baseline, Goal: goal}
	f.OK = goal == 0 || f.Ratio <= goal
	return r.keep(f)
}

func (r *Report) keep(f Figure) Figure {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.figures = append(r.figures, f)
	return f
}

// Write writes the figures to <dir>/<target>.json and prints them as a table.
func (r *Report) Write(dir, target string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.figures) == 0 {
		return nil
	}
	fmt.Printf("\n| what | ours | baseline | unit | ratio | goal |\n|---|---|---|---|---|---|\n")
	for _, f := range r.figures {
		goal := "-"
		if f.Goal > 0 {
			goal = fmt.Sprintf("%.2f", f.Goal)
		}
		if !f.OK {
			goal += " MISSED"
		}
		fmt.Printf("| %s | %.4g | %.4g | %s | %.3g | %s |\n", f.Name, f.Ours, f.Baseline, f.Unit, f.Ratio, goal)
	}
	b, err := json.MarshalIndent(r.figures, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, target+".json"), append(b, '\n'), 0o644)
}

// Interleave runs both sides by turns and returns the medians of their times.
func Interleave(rounds int, ours, baseline func(round int) time.Duration) (time.Duration, time.Duration) {
	var a, b []time.Duration
	for i := range rounds {
		if i%2 == 0 {
			a, b = append(a, ours(i)), append(b, baseline(i))
		} else {
			b, a = append(b, baseline(i)), append(a, ours(i))
		}
	}
	return Median(a), Median(b)
}

// Median returns the median of durations, which it sorts.
func Median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
