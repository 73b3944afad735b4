package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pelton-run/pelton/cmd/pelton/up"
	"github.com/pelton-run/pelton/manifests"
	"github.com/pelton-run/pelton/runtime/engine"
)

// verdict is what check found out about one file.
type verdict struct {
	File     string               `json:"file"`
	Function string               `json:"function,omitempty"`
	Version  string               `json:"version,omitempty"`
	Digest   string               `json:"digest,omitempty"`   // of the module
	Manifest string               `json:"manifest,omitempty"` // digest of the resolved manifest
	OK       bool                 `json:"ok"`
	Warnings []string             `json:"warnings,omitempty"`
	Error    string               `json:"error,omitempty"`
	Problems []*manifests.Problem `json:"problems,omitempty"`
}

func checkCommand() *cobra.Command {
	var asJSON bool
	var cache, place, secrets string
	cmd := &cobra.Command{
		Use:     "check [folder or manifest]...",
		Short:   "Validate manifests and modules without running them",
		Example: "  pelton check functions\n  pelton check functions/index.yaml\n  pelton check --host pelton.yaml --secrets /run/secrets functions",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"functions"}
			}
			lacks, err := lacking(cmd.Flags().Changed("host"), place, secrets)
			if err != nil {
				return err
			}
			verdicts, err := checkAll(cmd.Context(), args, cache, lacks)
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), verdicts)
			} else {
				printVerdicts(cmd.OutOrStdout(), verdicts)
			}
			for _, v := range verdicts {
				if !v.OK && err == nil {
					err = errReported
				}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&cache, "cache", "", "folder with compiled code, such as <data>/cache")
	cmd.Flags().StringVar(&place, "host", "", "say what this host lacks, by its pelton.yaml; \"\" for a host without one")
	cmd.Flags().StringVar(&secrets, "secrets", "", "with --host, folder with one file a secret, as of pelton up")
	return cmd
}

// lacking returns what tells what a host lacks for a manifest; nothing is looked at
// unless that is asked for.
func lacking(asked bool, place, secrets string) (func(*manifests.Manifest) []string, error) {
	if !asked {
		return func(*manifests.Manifest) []string { return nil }, nil
	}
	h, err := manifests.LoadHost(place)
	if err != nil {
		return nil, err
	}
	if secrets == "" {
		secrets = h.Secrets.Dir
	}
	look := up.EnvSecrets
	if secrets != "" {
		look = up.FileSecrets(secrets)
	}
	return func(m *manifests.Manifest) []string {
		return h.Missing(m, func(name string) error { _, err := look(name); return err })
	}, nil
}

func checkAll(ctx context.Context, args []string, cache string, lacks func(*manifests.Manifest) []string) ([]verdict, error) {
	e, err := engine.New(ctx, engine.Config{CacheDir: cache})
	if err != nil {
		return nil, err
	}
	defer e.Close(ctx)
	var verdicts []verdict
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", arg, err)
		}
		if !info.IsDir() {
			m, err := manifests.Load(arg)
			verdicts = append(verdicts, checkOne(ctx, e, up.Candidate{File: arg, Manifest: m, Err: err}, lacks))
			continue
		}
		found, err := up.ReadFolder(arg)
		if err != nil {
			return nil, err
		}
		streams, _ := manifests.LoadStreams(filepath.Join(arg, manifests.StreamsFile)) // its own verdict has the error
		for _, c := range found {
			v := checkOne(ctx, e, c, lacks)
			if v.OK && streams != nil {
				v.Warnings = shortWindows(c.Manifest, streams.Streams)
			}
			verdicts = append(verdicts, v)
		}
		if v, ok := checkStreams(filepath.Join(arg, manifests.StreamsFile)); ok {
			verdicts = append(verdicts, v)
		}
		if len(verdicts) == 0 {
			return nil, fmt.Errorf("%s holds no manifest (a .yaml, .yml or .json file)", arg)
		}
	}
	return verdicts, nil
}

// exactlyOnceWindow is how long a host may be away, at least, before what it has
// published in a transaction may be published twice.
const exactlyOnceWindow = 10 * time.Minute

// shortWindows warns of streams whose duplicate window is shorter than a host may
// be away, where a function with a transaction publishes to them.
func shortWindows(m *manifests.Manifest, streams []manifests.Stream) (warnings []string) {
	if m.WriteDatabase() == "" {
		return nil
	}
	for _, g := range m.Grants.Publish {
		for _, s := range streams {
			taken := slices.ContainsFunc(s.Subjects, func(subject string) bool { return manifests.SubjectsOverlap(subject, g.Subject) })
			if !g.Core && taken && s.DuplicateWindow.Std() < exactlyOnceWindow {
				warnings = append(warnings, fmt.Sprintf("publishes %s to stream %s, whose duplicate_window is %s: a host that comes back later than that may publish a message twice; set %s or more in %s",
					g.Subject, s.Name, s.DuplicateWindow, exactlyOnceWindow, manifests.StreamsFile))
			}
		}
	}
	return warnings
}

// checkStreams reports on a streams.yaml; ok is false when there is none.
func checkStreams(path string) (_ verdict, ok bool) {
	if _, err := os.Stat(path); err != nil {
		return verdict{}, false
	}
	_, err := manifests.LoadStreams(path)
	return judged(verdict{File: path}, err), true
}

func checkOne(ctx context.Context, e *engine.Engine, c up.Candidate, lacks func(*manifests.Manifest) []string) verdict {
	v := verdict{File: c.File}
	if c.Err != nil {
		return judged(v, c.Err)
	}
	v.Function, v.Version = c.Manifest.Name, c.Manifest.Version
	dir := filepath.Dir(c.File)
	digest, err := c.Manifest.Fingerprint(dir)
	if err == nil {
		err = up.Unsupported(c.Manifest)
	}
	if err != nil {
		return judged(v, fmt.Errorf("%s: %w", c.File, err))
	}
	v.Manifest = digest
	wasm, err := up.ReadModule(c.File, c.Manifest)
	if err != nil {
		return judged(v, err)
	}
	module, err := e.Compile(ctx, wasm, c.Manifest)
	if err != nil {
		return judged(v, fmt.Errorf("%s: %w", up.ModulePath(c.File, c.Manifest), err))
	}
	v.Digest = module.Digest()
	if missing := lacks(c.Manifest); len(missing) > 0 {
		return judged(v, errors.Join(fmt.Errorf("%s: this host lacks: %s", c.File, strings.Join(missing, "; ")), module.Close(ctx)))
	}
	return judged(v, module.Close(ctx))
}

func judged(v verdict, err error) verdict {
	v.OK = err == nil
	if err != nil {
		v.Error = err.Error()
		var problems manifests.Problems
		if errors.As(err, &problems) {
			v.Problems = problems
		}
	}
	return v
}

func printVerdicts(w io.Writer, verdicts []verdict) {
	bad := 0
	for _, v := range verdicts {
		switch {
		case !v.OK:
			bad++
			fmt.Fprintln(w, v.Error+"\n")
		case v.Function == "":
			fmt.Fprintf(w, "%s: ok\n", v.File)
		default:
			fmt.Fprintf(w, "%s: ok (%s %s, module %.19s…)\n", v.File, v.Function, v.Version, v.Digest)
		}
		for _, text := range v.Warnings {
			fmt.Fprintf(w, "  warning: %s\n", text)
		}
	}
	fmt.Fprintf(w, "%d checked, %d wrong\n", len(verdicts), bad)
}
