package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strings"
	"text/tabwriter"
)

// Report is the demo's result. Its JSON is part of the interface.
type Report struct {
	OK          bool                `json:"ok"`
	Events      int                 `json:"events"`
	Checks      []Check             `json:"checks"`
	Functions   map[string]Function `json:"functions"`
	DeadLetters []DeadLetter        `json:"dead_letters"`
}

// Check is one thing that was looked at.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// Function is one function's figures. The times are from publish to done.
type Function struct {
	Acked       uint64  `json:"acked"`
	Nak         uint64  `json:"nak"`
	Redelivered uint64  `json:"redelivered"`
	DeadLetters uint64  `json:"dead_letters"`
	P50         float64 `json:"p50_ms"`
	P99         float64 `json:"p99_ms"`
}

// DeadLetter is one dead letter.
type DeadLetter struct {
	Subject    string `json:"subject"`
	Function   string `json:"function"`
	Reason     string `json:"reason"`
	Deliveries int    `json:"deliveries"`
	body       string
}

// maxShown bounds the faults that one check lists.
const maxShown = 5

func (d *demo) report(letters []DeadLetter) *Report {
	if letters == nil {
		letters = []DeadLetter{}
	}
	return &Report{OK: true, Events: len(d.load.publications), Functions: d.figures(), DeadLetters: letters}
}

func (d *demo) figures() map[string]Function {
	figures := map[string]Function{}
	for _, f := range d.host.Report().Functions {
		figures[f.Function] = Function{Acked: f.Acked, Nak: f.Nak, Redelivered: f.Redelivered, DeadLetters: f.DeadLetters, P50: f.DoneP50, P99: f.DoneP99}
	}
	return figures
}

// add records a check; wrong lists what does not hold.
func (r *Report) add(name string, wrong []string, right string) {
	c := Check{Name: name, OK: len(wrong) == 0, Detail: right}
	if !c.OK {
		r.OK = false
		c.Detail = fmt.Sprintf("%d wrong: %s", len(wrong), strings.Join(wrong[:min(len(wrong), maxShown)], "; "))
	}
	r.Checks = append(r.Checks, c)
}

func (r *Report) print(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nFUNCTION\tACKED\tNAK\tREDELIVERED\tDEAD LETTERS\tP50 MS\tP99 MS")
	names := make([]string, 0, len(r.Functions))
	for name := range r.Functions {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		f := r.Functions[name]
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%.0f\t%.0f\n", name, f.Acked, f.Nak, f.Redelivered, f.DeadLetters, f.P50, f.P99)
	}
	fmt.Fprintln(t, "\nDEAD LETTERS BY REASON\tCOUNT")
	for _, line := range r.byReason() {
		fmt.Fprintln(t, line)
	}
	fmt.Fprintln(t, "\nCHECK\tRESULT")
	for _, c := range r.Checks {
		mark := "ok"
		if !c.OK {
			mark = "WRONG"
		}
		fmt.Fprintf(t, "%s\t%s: %s\n", c.Name, mark, c.Detail)
	}
	return t.Flush()
}

func (r *Report) byReason() []string {
	counts := map[string]int{}
	for _, l := range r.DeadLetters {
		reason := l.Reason
		if len(reason) > 70 {
			reason = reason[:70] + "…"
		}
		counts[reason]++
	}
	lines := make([]string, 0, len(counts))
	for reason, n := range counts {
		lines = append(lines, fmt.Sprintf("%s\t%d", reason, n))
	}
	sort.Strings(lines)
	return lines
}
