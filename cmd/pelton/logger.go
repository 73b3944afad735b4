package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
)

// logger writes JSON lines, or pretty ones on a terminal.
func logger(level string) (zerolog.Logger, error) {
	l, err := zerolog.ParseLevel(level)
	if err != nil || level == "" {
		return zerolog.Nop(), usageError{fmt.Errorf("log level %q is not one of debug, info, warn, error", level)}
	}
	var out io.Writer = os.Stderr
	if isatty.IsTerminal(os.Stderr.Fd()) {
		out = zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: time.TimeOnly, NoColor: os.Getenv("NO_COLOR") != ""}
	}
	return zerolog.New(out).Level(l).With().Timestamp().Logger(), nil
}
