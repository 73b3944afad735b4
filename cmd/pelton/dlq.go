package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pelton-run/pelton/runtime/status"
	"github.com/pelton-run/pelton/runtime/trigger"
)

// readTimeout bounds what is asked of the server for one dead letter.
const readTimeout = 10 * time.Second

func dlqCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "List, read, redrive and purge dead letters",
		Long: `Dead letters are the messages that functions gave up on, whole, with the reason.
They lie in the stream that takes dlq.>, which is made when the first is stored.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(dlqLsCommand(), dlqShowCommand(), dlqRedriveCommand(), dlqPurgeCommand())
	return cmd
}

// letterFlags is which dead letters a command is about, and where they are.
type letterFlags struct {
	conn         connection
	stream       string
	filter       trigger.LetterFilter
	since, until string
	asJSON       bool
}

func (l *letterFlags) flags(cmd *cobra.Command) {
	l.conn.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&l.stream, "stream", "", "the stream of dead letters (default: the one that takes dlq.>)")
	f.BoolVar(&l.asJSON, "json", false, "print JSON")
}

func (l *letterFlags) filterFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&l.filter.Function, "function", "f", "", "of this function only")
	f.StringVar(&l.filter.Reason, "reason", "", "with this reason only: term, max_deliver, retry_for, crash")
	f.StringVar(&l.filter.Subject, "subject", "", "whose original subject matches, such as video.>")
	f.StringVar(&l.since, "since", "", "given up on since: a duration ago (2h) or a time (2026-11-30T10:00:00Z)")
	f.StringVar(&l.until, "until", "", "given up on before, likewise")
}

// filtered reports whether anything selects letters.
func (l *letterFlags) filtered() bool { return l.filter != (trigger.LetterFilter{}) }

// open connects and finds the letters; close ends the connection.
func (l *letterFlags) open(ctx context.Context) (letters *trigger.Letters, nc *nats.Conn, err error) {
	now := time.Now()
	if l.filter.Since, err = parseWhen("--since", l.since, now); err != nil {
		return nil, nil, err
	}
	if l.filter.Until, err = parseWhen("--until", l.until, now); err != nil {
		return nil, nil, err
	}
	if nc, err = l.conn.connect(ctx); err != nil {
		return nil, nil, err
	}
	js, err := l.conn.jetStream(nc)
	if err == nil {
		letters, err = trigger.OpenLetters(ctx, js, l.stream)
	}
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return letters, nc, nil
}

// parseWhen reads a duration ago, or a time.
func parseWhen(flag, s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, usageError{fmt.Errorf("%s %q is neither a duration such as 2h nor a time such as 2026-11-30T10:00:00Z", flag, s)}
	}
	return t, nil
}

func dlqLsCommand() *cobra.Command {
	var l letterFlags
	var limit int
	cmd := &cobra.Command{
		Use: "ls", Short: "List dead letters, the oldest first",
		Example: "  pelton dlq ls --function index --since 2h\n  pelton dlq ls --json | jq -r .[].error | sort | uniq -c",
		RunE: func(cmd *cobra.Command, _ []string) error {
			letters, nc, err := l.open(cmd.Context())
			if errors.Is(err, trigger.ErrNoLetters) {
				return printLetters(cmd.OutOrStdout(), nil, false, l.asJSON)
			}
			if err != nil {
				return err
			}
			defer nc.Close()
			all, more := []trigger.Letter{}, false
			err = letters.List(cmd.Context(), l.filter, func(x trigger.Letter) bool {
				if more = limit > 0 && len(all) == limit; !more {
					all = append(all, x)
				}
				return !more
			})
			if err != nil {
				return err
			}
			return printLetters(cmd.OutOrStdout(), all, more, l.asJSON)
		},
	}
	l.flags(cmd)
	l.filterFlags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 1000, "list no more than so many; 0 lists all")
	return cmd
}

func printLetters(w io.Writer, all []trigger.Letter, more, asJSON bool) error {
	if asJSON {
		if all == nil {
			all = []trigger.Letter{}
		}
		return printJSON(w, all)
	}
	if len(all) == 0 {
		fmt.Fprintln(w, "no dead letters")
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SEQ\tTIME\tFUNCTION\tSUBJECT\tREASON\tATTEMPTS\tERROR")
	for _, x := range all {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%d\t%s\n", x.Sequence, x.Time.Local().Format("2006-01-02 15:04:05"), dash(x.Function), x.Subject, dash(x.Reason), x.Attempts, shorten(x.Error, 60))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if more {
		fmt.Fprintf(w, "and more; see --limit\n")
	}
	return nil
}

// shorten cuts a text for a table.
func shorten(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

func dlqShowCommand() *cobra.Command {
	var l letterFlags
	var body bool
	cmd := &cobra.Command{
		Use: "show <sequence>", Short: "Show one dead letter with its message",
		Example: "  pelton dlq show 17\n  pelton dlq show 17 --body > message.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			sequences, err := parseSequences(args)
			if err != nil {
				return err
			}
			letters, nc, err := l.open(cmd.Context())
			if err != nil {
				return err
			}
			defer nc.Close()
			ctx, cancel := context.WithTimeout(cmd.Context(), readTimeout)
			defer cancel()
			full, err := letters.Get(ctx, sequences[0])
			if err != nil {
				return err
			}
			if body {
				_, err := cmd.OutOrStdout().Write(full.Data)
				return err
			}
			return printLetter(cmd.OutOrStdout(), full, l.asJSON)
		},
	}
	l.flags(cmd)
	cmd.Flags().BoolVar(&body, "body", false, "write the body alone, as it is")
	return cmd
}

// shown is a dead letter for printing: a body that is text is text.
type shown struct {
	trigger.Letter
	Headers nats.Header `json:"headers,omitempty"`
	Text    *string     `json:"text,omitempty"`
	Data    []byte      `json:"data,omitempty"` // base64, of a body that is not text
}

func printLetter(w io.Writer, full *trigger.Full, asJSON bool) error {
	v := shown{Letter: full.Letter, Headers: full.Headers}
	if utf8.Valid(full.Data) {
		text := string(full.Data)
		v.Text = &text
	} else {
		v.Data = full.Data
	}
	if asJSON {
		return printJSON(w, v)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, value any) { fmt.Fprintf(t, "%s\t%v\n", name, value) }
	row("dead letter", full.Sequence)
	row("given up at", full.Time.Local().Format(time.RFC3339))
	row("function", dash(full.Function)+" on "+dash(full.Host)+" in region "+dash(full.Region))
	row("message", fmt.Sprintf("%d of stream %s, on %s", full.StreamSeq, dash(full.Stream), full.Subject))
	row("durable", dash(full.Consumer))
	row("reason", full.Reason)
	row("error", full.Error)
	row("attempts", fmt.Sprintf("%d, in %d deliveries", full.Attempts, full.Deliveries))
	row("failures", dash(full.FirstFailure)+" to "+dash(full.LastFailure))
	for name, values := range full.Headers {
		row("header "+name, strings.Join(values, " | "))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	switch {
	case len(full.Data) == 0:
		fmt.Fprintln(w, "\nthe body is empty")
	case v.Text == nil:
		fmt.Fprintf(w, "\nthe body has %d bytes that are no text; write it with --body\n", len(full.Data))
	default:
		fmt.Fprintf(w, "\n%s\n", *v.Text)
	}
	return nil
}

func parseSequences(args []string) (all []uint64, err error) {
	for _, a := range args {
		n, err := strconv.ParseUint(a, 10, 64)
		if err != nil || n == 0 {
			return nil, usageError{fmt.Errorf("%q is not the sequence of a dead letter; pelton dlq ls shows them", a)}
		}
		all = append(all, n)
	}
	return all, nil
}

// chosen is what redrive and purge share: which letters, and whether for real.
type chosen struct {
	letterFlags
	all, dryRun bool
}

func (c *chosen) flags(cmd *cobra.Command, verb string) {
	c.letterFlags.flags(cmd)
	c.filterFlags(cmd)
	cmd.Flags().BoolVar(&c.all, "all", false, verb+" all that there are")
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "say what would be done, and do nothing")
}

// outcome is what became of one letter.
type outcome struct {
	Sequence uint64 `json:"sequence"`
	Subject  string `json:"subject,omitempty"`
	Function string `json:"function,omitempty"`
	Error    string `json:"error,omitempty"`
}

// tally is what redrive and purge print.
type tally struct {
	Done   int       `json:"done"`
	Failed int       `json:"failed"`
	DryRun bool      `json:"dry_run,omitempty"`
	Each   []outcome `json:"letters"`
}

// run does something to each letter that is chosen, with progress, and counts.
func (c *chosen) run(cmd *cobra.Command, args []string, past string, do func(ctx context.Context, letters *trigger.Letters, nc *nats.Conn, x trigger.Letter) error) error {
	sequences, err := parseSequences(args)
	if err != nil {
		return err
	}
	if ways := btoi(len(args) > 0) + btoi(c.all) + btoi(c.filtered() || c.since != "" || c.until != ""); ways != 1 {
		return usageError{fmt.Errorf("say which dead letters: by their sequences, by a filter such as --function, or --all")}
	}
	ctx := cmd.Context()
	letters, nc, err := c.open(ctx)
	if errors.Is(err, trigger.ErrNoLetters) && len(args) == 0 {
		return c.print(cmd, tally{Each: []outcome{}}, past)
	}
	if err != nil {
		return err
	}
	defer nc.Close()
	picked, err := c.pick(ctx, letters, sequences)
	if err != nil {
		return err
	}
	result := tally{DryRun: c.dryRun, Each: []outcome{}}
	progress := newProgress(cmd.ErrOrStderr(), len(picked))
	for i, x := range picked {
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted after %d of %d: %w", i, len(picked), ctx.Err())
		}
		o := outcome{Sequence: x.Sequence, Subject: x.Subject, Function: x.Function}
		if !c.dryRun {
			if err := do(ctx, letters, nc, x); err != nil {
				o.Error = err.Error()
			}
		}
		result.Done += btoi(o.Error == "")
		result.Failed += btoi(o.Error != "")
		result.Each = append(result.Each, o)
		progress.step(i + 1)
	}
	return c.print(cmd, result, past)
}

// pick reads the letters before anything is done to them: those that come in
// meanwhile, for having failed again say, are not among them.
func (c *chosen) pick(ctx context.Context, letters *trigger.Letters, sequences []uint64) (picked []trigger.Letter, err error) {
	for _, n := range sequences {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		full, err := letters.Get(ctx, n)
		cancel()
		if err != nil {
			return nil, err
		}
		picked = append(picked, full.Letter)
	}
	if len(sequences) > 0 {
		return picked, nil
	}
	err = letters.List(ctx, c.filter, func(x trigger.Letter) bool {
		picked = append(picked, x)
		return true
	})
	return picked, err
}

func (c *chosen) print(cmd *cobra.Command, r tally, past string) error {
	w := cmd.OutOrStdout()
	if c.asJSON {
		if err := printJSON(w, r); err != nil {
			return err
		}
	} else {
		for _, o := range r.Each {
			switch {
			case o.Error != "":
				fmt.Fprintf(w, "%d on %s: %s\n", o.Sequence, o.Subject, o.Error)
			case r.DryRun:
				fmt.Fprintf(w, "%d on %s would be %s\n", o.Sequence, o.Subject, past)
			}
		}
		if r.DryRun {
			fmt.Fprintf(w, "%d would be %s\n", r.Done, past)
		} else {
			fmt.Fprintf(w, "%d %s, %d failed\n", r.Done, past, r.Failed)
		}
	}
	if r.Failed > 0 {
		return errReported
	}
	return nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// progress shows how far a command is, on a terminal.
type progress struct {
	w     io.Writer
	total int
	last  time.Time
}

func newProgress(w io.Writer, total int) *progress {
	f, ok := w.(*os.File)
	if ok {
		info, err := f.Stat()
		ok = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	if !ok {
		w = io.Discard
	}
	return &progress{w: w, total: total}
}

func (p *progress) step(n int) {
	if n == p.total {
		fmt.Fprint(p.w, "\r\x1b[K")
	} else if time.Since(p.last) > 100*time.Millisecond {
		p.last = time.Now()
		fmt.Fprintf(p.w, "\r%d of %d", n, p.total)
	}
}

func dlqRedriveCommand() *cobra.Command {
	var c chosen
	var direct, again bool
	var patience time.Duration
	cmd := &cobra.Command{
		Use: "redrive [sequence…]", Short: "Have messages handled that were given up on",
		Long: `Publish the messages of dead letters on their original subjects, where every
function that takes them gets them, and remove the letters. With --direct each is
handed to the function that gave up on it, to no other, and its letter is removed
once it is handled. A letter is redriven once: while that is under way, or after it
broke off half way, it is refused unless --again is given.`,
		Example: "  pelton dlq redrive 17 18\n  pelton dlq redrive --function thumbnail --since 2h --direct\n  pelton dlq redrive --all --dry-run",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			hosts := map[string]string{}
			return c.run(cmd, args, "redriven", func(ctx context.Context, letters *trigger.Letters, nc *nats.Conn, x trigger.Letter) error {
				ctx, cancel := context.WithTimeout(ctx, patience)
				defer cancel()
				if !direct {
					return letters.Redrive(ctx, x.Sequence, again)
				}
				host, err := hostOf(ctx, nc, x.Function, hosts)
				if err != nil {
					return err
				}
				return status.AskRedrive(ctx, nc, host, status.Redrive{Function: x.Function, Stream: letters.Stream(), Sequence: x.Sequence, Again: again})
			})
		},
	}
	c.flags(cmd, "redrive")
	f := cmd.Flags()
	f.BoolVar(&direct, "direct", false, "hand each to the function that gave up on it, to no other")
	f.BoolVar(&again, "again", false, "also what somebody redrives already, or did not end to")
	f.DurationVar(&patience, "timeout", time.Minute, "how long one may take")
	return cmd
}

// hostOf finds a host that runs a function, and remembers it.
func hostOf(ctx context.Context, nc *nats.Conn, function string, known map[string]string) (string, error) {
	if host, ok := known[function]; ok {
		return host, nil
	}
	reports, err := status.ListHosts(ctx, nc, quiet)
	if err != nil {
		return "", err
	}
	for _, r := range reports {
		for _, f := range r.Functions {
			if f.Function == function && f.Digest != "" && f.State != status.StateStandby {
				known[function] = r.Host
				return r.Host, nil
			}
		}
	}
	return "", fmt.Errorf("no host runs function %s", function)
}

func dlqPurgeCommand() *cobra.Command {
	var c chosen
	cmd := &cobra.Command{
		Use: "purge [sequence…]", Short: "Remove dead letters for good",
		Example: "  pelton dlq purge 17\n  pelton dlq purge --function thumbnail --reason term\n  pelton dlq purge --all --dry-run",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd, args, "purged", func(ctx context.Context, letters *trigger.Letters, _ *nats.Conn, x trigger.Letter) error {
				ctx, cancel := context.WithTimeout(ctx, readTimeout)
				defer cancel()
				return letters.Remove(ctx, x.Sequence)
			})
		},
	}
	c.flags(cmd, "purge")
	return cmd
}
