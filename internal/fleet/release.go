package fleet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// DefaultVersion is what upgradable nodes report before an upgrade.
const DefaultVersion = "0.30.0"

// ErrNoRelease is returned by VersionOf for a file that is no executable of a fleet.
var ErrNoRelease = errors.New("not an executable of a fleet")

const executableFile = "choria"

// The version of an executable is what the node reports that runs from it: an upgrade that swaps the file changes it,
// nothing else does.
const (
	releaseBegins = "#!/bin/sh\n# a server of version "
	releaseLine   = " of a provctl fleet\n"
)

var versionText = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+~_-]{0,63}$`)

// release is the content of an executable of that version. It is a program in its own right to everything that handles
// it: the updater takes it for its target, packs, hashes, backs up and swaps it, and a restart executes it by its path.
// Being a script that goes on as command, it costs a node bytes where a copy of the real one would cost it 60 MB on disk
// and seconds of unpacking.
func release(version string, command []string) []byte {
	var b strings.Builder
	b.WriteString(releaseBegins + version + releaseLine + "exec")
	for _, arg := range command {
		b.WriteString(" " + shellWord(arg))
	}
	b.WriteString(` --executable "$0" --version ` + shellWord(version) + " \"$@\"\n")
	return []byte(b.String())
}

func shellWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// VersionOf reads which version a node reports that runs from that executable. The error wraps ErrNoRelease where a
// release published with a content of its own has none.
func VersionOf(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading an executable: %w", err)
	}
	rest, ok := strings.CutPrefix(string(text), releaseBegins)
	version, _, found := strings.Cut(rest, releaseLine)
	if !ok || !found {
		return "", fmt.Errorf("%w: %s", ErrNoRelease, path)
	}
	return version, nil
}

// writeExecutable makes a node's own executable. While it is open no process may be forked: a child that inherits it for a
// moment would keep the kernel from executing it.
func writeExecutable(path string, content []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, content, 0o700)
}

// Executable is the file that the node's process runs from, with Options.Upgradable or Options.Version; empty without.
// An upgrade leaves the former one beside it as ".backup" and, if it failed, what it had downloaded as ".new".
func (f *Fleet) Executable(node string) (string, error) {
	n, err := f.node(node)
	if err != nil || f.opts.Version == "" {
		return "", err
	}
	return filepath.Join(n.dir, executableFile), nil
}
