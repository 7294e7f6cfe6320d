package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/term"
)

// logFile is a log's file. Once it was renamed, as a rotation does, it can be opened again under its own name. Without a path it is
// standard error.
type logFile struct {
	path string
	mu   sync.Mutex
	file *os.File
}

// newLog writes text for a person at a terminal and JSON for everything else. The file, if one is named, is appended to; the caller
// closes it.
func newLog(path string, level slog.Level) (*slog.Logger, *logFile, error) {
	to := &logFile{path: path, file: os.Stderr}
	options := &slog.HandlerOptions{Level: level}
	if path == "" && term.IsTerminal(int(os.Stderr.Fd())) {
		return slog.New(slog.NewTextHandler(io.Writer(to), options)), to, nil
	}
	if err := to.Reopen(); err != nil {
		return nil, nil, err
	}
	return slog.New(slog.NewJSONHandler(to, options)), to, nil
}

func (l *logFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Write(b)
}

// Reopen goes on with the file that has the name now, or makes it. After an error it goes on with the one it has. It does nothing for
// standard error.
func (l *logFile) Reopen() error {
	if l.path == "" {
		return nil
	}
	f, err := openOwn(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("the logfile cannot be opened: %w; name one in an existing directory that this user may write to, or none for standard error", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.close()
	l.file = f
	return nil
}

// Close ends it. What is written then is lost.
func (l *logFile) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.close()
}

func (l *logFile) close() {
	if l.file != os.Stderr {
		_ = l.file.Close()
	}
}
