package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"
)

// newLog writes text for a person at a terminal and JSON for everything else. The file, if one is named, is appended to; the
// returned function closes it.
func newLog(file string, level slog.Level) (*slog.Logger, func(), error) {
	out, done := io.Writer(os.Stderr), func() {}
	terminal := term.IsTerminal(int(os.Stderr.Fd()))
	if file != "" {
		f, err := openOwn(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, nil, fmt.Errorf("the logfile cannot be opened: %w; name one in an existing directory that this user may write to, or none for standard error", err)
		}
		out, terminal, done = f, false, func() { _ = f.Close() }
	}
	options := &slog.HandlerOptions{Level: level}
	if terminal {
		return slog.New(slog.NewTextHandler(out, options)), done, nil
	}
	return slog.New(slog.NewJSONHandler(out, options)), done, nil
}
