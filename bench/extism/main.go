// Command extism runs the exports of a plain guest in the Extism Go SDK with its
// timeout on, and prints the nanoseconds of one call of each.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	extism "github.com/extism/go-sdk"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(file string) error {
	ctx := context.Background()
	manifest := extism.Manifest{Wasm: []extism.Wasm{extism.WasmFile{Path: file}}, Timeout: uint64(time.Minute / time.Millisecond)}
	plugin, err := extism.NewPlugin(ctx, manifest, extism.PluginConfig{EnableWasi: true}, nil)
	if err != nil {
		return fmt.Errorf("make plugin: %w", err)
	}
	defer plugin.Close(ctx)
	times := map[string]time.Duration{}
	for _, kind := range []string{"jpeg", "json", "sha256", "sort", "regexp"} {
		if times[kind], err = measure(plugin, kind); err != nil {
			return fmt.Errorf("call %s: %w", kind, err)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(times)
}

// measure returns the median of the calls that fit a second.
func measure(plugin *extism.Plugin, kind string) (time.Duration, error) {
	var all []time.Duration
	for begin := time.Now(); len(all) < 5 || time.Since(begin) < time.Second; {
		start := time.Now()
		if _, _, err := plugin.Call(kind, nil); err != nil {
			return 0, err
		}
		all = append(all, time.Since(start))
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}
