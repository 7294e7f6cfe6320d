package crashtests

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"provctl/internal/fleet"
)

// traces are what no output may hold, whatever came in.
var traces = regexp.MustCompile(`panic|goroutine \d|runtime error|SIGSEGV|SIGBUS|\.go:\d+|internal error`)

// whole fails the test if a text shows that the program broke rather than refused.
func whole(t testing.TB, what, text string) {
	t.Helper()
	if found := traces.FindString(text); found != "" {
		t.Errorf("%s holds %q:\n%s", what, found, text)
	}
}

// secrets are the texts that may be in no log, output or journal: tokens, passwords, keys.
func (s *site) secrets(t testing.TB) map[string]string {
	t.Helper()
	found := map[string]string{"the site's token": s.files.Token, "the broker password": s.files.Password}
	files := map[string]string{"the signer's seed": s.files.SignerSeed, "the signer's token": s.files.SignerToken}
	for _, node := range s.fleet.Nodes() {
		dir, err := s.fleet.NodeDir(node)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"provisioning.jwt", "server.jwt", "server.seed"} {
			files[name+" of "+node] = filepath.Join(dir, name)
		}
	}
	for what, path := range files {
		b, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		text := strings.TrimSpace(string(b))
		found[what] = text
		if parts := strings.Split(text, "."); len(parts) == 3 { // a JWT: its claims or its signature alone are too much already
			found["the claims in "+what], found["the signature of "+what] = parts[1], parts[2]
		}
	}
	return found
}

// silent fails the test if a text holds a secret. It never prints the text.
func (s *site) silent(t testing.TB, what, text string) {
	t.Helper()
	for secret, value := range s.secrets(t) {
		switch {
		case value == "" && !strings.HasPrefix(secret, "the signature of"):
			t.Errorf("%s is empty: nothing was looked for", secret)
		case value != "" && strings.Contains(text, value):
			t.Errorf("%s holds %s", what, secret)
		}
	}
}

// discreet checks everything that the worker wrote: its log, what it prints about its state, its journal.
func (s *site) discreet() {
	s.t.Helper()
	logged, err := os.ReadFile(s.log)
	if err != nil {
		s.t.Fatal(err)
	}
	whole(s.t, "the log", string(logged))
	s.silent(s.t, "the log", string(logged))
	shown, _ := s.provctl("inspect", "--state-dir", s.files.StateDir)
	whole(s.t, "inspect", shown)
	s.silent(s.t, "inspect", shown)
	stored, err := os.ReadFile(filepath.Join(s.files.StateDir, "journal.db"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.silent(s.t, "the journal", string(stored))
}

// refused runs a worker that must not come up: it returns all that it printed and its exit code. The superuser may write
// anywhere, so the program runs without that privilege.
func refused(t *testing.T, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var out []byte
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread, which has lost the privilege, ends with this goroutine
		if err = unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_DAC_OVERRIDE, 0, 0, 0); err != nil && !errors.Is(err, unix.EPERM) {
			return
		}
		out, err = exec.CommandContext(ctx, program, append([]string{"run"}, args...)...).CombinedOutput()
	}()
	<-done
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		t.Fatalf("the worker came up, or hung: %.2000s", out)
	case err == nil:
		return string(out), 0
	case !errors.As(err, &exit):
		t.Fatal(err)
	}
	return string(out), exit.ExitCode()
}

// says checks an outcome: exit code, the words that tell place, value and remedy, and that nothing broke.
func says(t *testing.T, out string, code, wantCode int, words ...string) {
	t.Helper()
	if code != wantCode {
		t.Errorf("exit code %d, want %d: %s", code, wantCode, out)
	}
	for _, w := range words {
		if matched, err := regexp.MatchString(w, out); err != nil || !matched {
			t.Errorf("the message lacks %q (%v): %s", w, err, out)
		}
	}
	whole(t, "the message", out)
}

// copyDir copies the regular files of a flat directory.
func copyDir(t testing.TB, from, to string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, b := range contents(t, from) {
		write(t, filepath.Join(to, name), b)
	}
}

// contents reads the regular files of a directory; those that are no more there, or no files, are left out.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		if e.Type().IsRegular() {
			all[e.Name()] = read(t, filepath.Join(dir, e.Name()))
		}
	}
	return all
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// heldWhy is the reason for which a node is held, as inspect shows it; empty while it is not.
func (s *site) heldWhy(node string) string {
	s.t.Helper()
	for _, n := range s.inspect().Nodes {
		if n.Node == node && n.State == "held" {
			return n.Why
		}
	}
	return ""
}

// requests counts what reached the provision agent of a node, run or not.
func (s *site) requests(node string) int {
	s.t.Helper()
	entries, err := s.fleet.Log(node)
	if err != nil {
		s.t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if e.Phase == fleet.PhaseReceived {
			n++
		}
	}
	return n
}
