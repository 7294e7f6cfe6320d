package helper_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kballard/go-shellquote"

	"provctl/internal/helper"
)

// modeEnv makes the test binary act as a helper, or as a worker that runs one.
const modeEnv = "PROVCTL_TEST_HELPER_MODE"

func TestMain(m *testing.M) {
	switch os.Getenv(modeEnv) {
	case "":
		os.Exit(m.Run())
	case "echo": // answers with what it was given
		input, err := io.ReadAll(os.Stdin)
		if err != nil {
			os.Exit(3)
		}
		_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"defer": true, "msg": string(input) + "|" + strings.Join(os.Args[1:], "|") + "|" + os.Getenv("PROVCTL_JOB")})
	case "flood":
		line := bytes.Repeat([]byte("x"), 4096)
		for {
			if _, err := os.Stdout.Write(line); err != nil {
				os.Exit(4)
			}
		}
	case "leave": // leaves the group, then is a shell
		if _, err := syscall.Setsid(); err != nil {
			os.Exit(5)
		}
		_ = syscall.Exec("/bin/sh", []string{"sh", "-c", os.Args[1]}, os.Environ())
		os.Exit(6)
	case "worker":
		_, _ = helper.Run(context.Background(), helper.Options{Command: os.Args[1], Timeout: time.Hour, Env: []string{modeEnv + "="}}, helper.Input{})
	}
}

// sh is the command line that runs script in a shell.
func sh(script string) string { return shellquote.Join("/bin/sh", "-c", script) }

// self is the command line that runs this binary in a mode; env carries the mode.
func self(t *testing.T, mode string, args ...string) (command string, env []string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return shellquote.Join(append([]string{exe}, args...)...), []string{modeEnv + "=" + mode}
}

// bounded returns a context that fails the test instead of hanging it.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

const deferReply = `printf '{"defer":true}'`

func TestRunGivesTheInputByteForByte(t *testing.T) {
	command, env := self(t, "echo", "--site", "north 1", "$HOME;*")
	reply, err := helper.Run(bounded(t), helper.Options{Command: command, Env: append(env, "PROVCTL_JOB=7")}, helper.Input{
		Identity:  "n1.example.net",
		Ed25519:   &helper.Ed25519{PublicKey: "aa", Directory: "/etc/choria", Signature: "bb"},
		Inventory: `{"facts":{"a":"<&>"}}`,
		JWT:       json.RawMessage(`{"cht":"s3cret","chs":false}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"identity":"n1.example.net","csr":null,"ed25519_pubkey":{"public_key":"aa","directory":"/etc/choria","signature":"bb"},` +
		`"inventory":"{\"facts\":{\"a\":\"\u003c\u0026\u003e\"}}","jwt":{"cht":"s3cret","chs":false}}` + `|--site|north 1|$HOME;*|7`
	if reply.Msg != want {
		t.Errorf("got  %s\nwant %s", reply.Msg, want)
	}
	reply, err = helper.Run(bounded(t), helper.Options{Command: command, Env: env}, helper.Input{})
	if err != nil || !strings.HasPrefix(reply.Msg, `{"identity":"","csr":null,"ed25519_pubkey":null,"inventory":"","jwt":null}|`) {
		t.Errorf("empty input: %v %v", reply.Msg, err)
	}
}

func TestRunErrors(t *testing.T) {
	dir := t.TempDir()
	script := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	flood, floodEnv := self(t, "flood")
	tests := []struct {
		name, command string
		kind          error
		text          string
		env           []string
	}{
		{"missing", dir + "/nope --x", helper.ErrMissing, "no such file", nil},
		{"missing in PATH", "provctl-no-such-helper", helper.ErrMissing, "not found", nil},
		{"empty command", "", helper.ErrMissing, "cannot be split", nil},
		{"open quote", "'x", helper.ErrMissing, "cannot be split", nil},
		{"empty program", "'' x", helper.ErrMissing, "cannot be split", nil},
		{"directory", dir, helper.ErrMissing, "full path", nil},
		{"not executable", script("plain", "#!/bin/sh\n", 0o600), helper.ErrMissing, "may execute", nil},
		{"no interpreter", script("odd", "#!/no/such/interpreter\n", 0o700), helper.ErrMissing, "interpreter", nil},
		{"not a program", script("text", "hello\n", 0o700), helper.ErrMissing, "#!/bin/sh", nil},
		{"exit code", sh("echo why >&2; exit 3"), helper.ErrExit, `exit code 3, output "why`, nil},
		{"exit code with a reply", sh(deferReply + "; exit 1"), helper.ErrExit, "exit code 1", nil},
		{"signal", sh("kill -9 $$"), helper.ErrExit, "killed by signal killed", nil},
		{"nothing", sh("cat >/dev/null"), helper.ErrNoOutput, "", nil},
		{"blank", sh("echo"), helper.ErrNoOutput, "", nil},
		{"garbage", sh("echo '<html>'"), helper.ErrGarbage, `"<html>`, nil},
		{"invalid UTF-8", sh(`printf '{"defer":true,"msg":"\377"}'`), helper.ErrGarbage, "UTF-8", nil},
		{"duplicate keys", sh(`echo '{"defer":true,"defer":true}'`), helper.ErrGarbage, "duplicate", nil},
		{"newline in a value", sh(`printf '%s' '{"configuration":{"a":"b\nc","plugin.choria.server.provision":"0"}}'`), helper.ErrInvalid, "line break", nil},
		{"too much, endless", flood, helper.ErrTooMuch, "more than 65536 bytes", floodEnv},
		{"too much, then exit", sh("head -c 70000 /dev/zero"), helper.ErrTooMuch, "more than 65536 bytes", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			reply, err := helper.Run(bounded(t), helper.Options{Command: tt.command, Timeout: time.Minute, MaxOutput: 1 << 16, Env: tt.env}, helper.Input{})
			if reply != nil || !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.text) {
				t.Fatalf("got %v, want %v with %q", err, tt.kind, tt.text)
			}
		})
	}
}

func TestRunInputThatIsNotJSONStartsNothing(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "ran")
	_, err := helper.Run(bounded(t), helper.Options{Command: sh("touch " + mark)}, helper.Input{JWT: json.RawMessage("{")})
	if !errors.Is(err, helper.ErrInput) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = helper.Run(ctx, helper.Options{Command: sh("touch " + mark)}, helper.Input{})
	if !errors.Is(err, helper.ErrCanceled) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the helper ran")
	}
}

func TestRunHelperThatIgnoresItsInput(t *testing.T) {
	in := helper.Input{Inventory: strings.Repeat("x", 1<<20)} // more than a pipe holds
	if _, err := helper.Run(bounded(t), helper.Options{Command: sh(deferReply)}, in); err != nil {
		t.Error(err)
	}
	_, err := helper.Run(bounded(t), helper.Options{Command: sh("sleep 1000"), Timeout: 100 * time.Millisecond}, in)
	if !errors.Is(err, helper.ErrTimeout) {
		t.Errorf("got %v", err)
	}
}

// lifeline is a named pipe that tells when every process that opened it for
// writing is gone.
type lifeline struct {
	path  string
	ready chan struct{} // closed at the first byte
	gone  chan struct{} // closed at end of file
}

func newLifeline(t *testing.T) *lifeline {
	t.Helper()
	l := &lifeline{path: filepath.Join(t.TempDir(), "alive"), ready: make(chan struct{}), gone: make(chan struct{})}
	if err := syscall.Mkfifo(l.path, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		f, err := os.Open(l.path)
		if err != nil {
			return
		}
		if _, err := f.Read(make([]byte, 1)); err == nil {
			close(l.ready)
		}
		_, _ = io.Copy(io.Discard, f)
		_ = f.Close()
		close(l.gone)
	}()
	return l
}

// hold is shell text after which the process and its children keep the line open.
func (l *lifeline) hold() string { return "exec 9>" + l.path + "; printf r >&9; " }

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	ctx := bounded(t)
	select {
	case <-c:
	case <-ctx.Done():
		t.Fatalf("not seen: %s", what)
	}
}

func TestRunKillsTheGroup(t *testing.T) {
	tests := []struct {
		name, script string
		timeout      time.Duration
		kind         error // nil: a reply
	}{
		{"at the deadline", "sleep 1000 & printf partial; sleep 1000", 5 * time.Second, helper.ErrTimeout},
		{"after success, output held open", "sleep 1000 & " + deferReply, time.Minute, nil},
		{"after success, output closed", "sleep 1000 >/dev/null 2>&1 & " + deferReply, time.Minute, nil},
		{"after success, error output held", "sleep 1000 >/dev/null & " + deferReply, time.Minute, nil},
		{"after a failure", "sleep 1000 & exit 1", time.Minute, helper.ErrExit},
		{"after too much", "sleep 1000 & head -c 2000000 /dev/zero", time.Minute, helper.ErrTooMuch},
		{"deaf to SIGTERM", "trap '' TERM INT HUP; sleep 1000", 5 * time.Second, helper.ErrTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			line := newLifeline(t)
			reply, err := helper.Run(bounded(t), helper.Options{Command: sh(line.hold() + tt.script), Timeout: tt.timeout}, helper.Input{})
			if !errors.Is(err, tt.kind) || (tt.kind == nil) != (reply != nil) {
				t.Errorf("got %v, %v", reply, err)
			}
			await(t, "the start of the helper", line.ready)
			await(t, "the death of all children", line.gone)
		})
	}
}

func TestRunCanceled(t *testing.T) {
	line := newLifeline(t)
	ctx, cancel := context.WithCancel(bounded(t))
	go func() {
		<-line.ready
		cancel()
	}()
	_, err := helper.Run(ctx, helper.Options{Command: sh(line.hold() + "sleep 1000 & sleep 1000"), Timeout: time.Hour}, helper.Input{})
	if !errors.Is(err, helper.ErrCanceled) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	await(t, "the death of all children", line.gone)
}

// TestRunChildThatLeftTheGroup: such a child is beyond reach, but must not hold
// Run up, neither by the output nor by the input.
func TestRunChildThatLeftTheGroup(t *testing.T) {
	line := newLifeline(t)
	stop, left := filepath.Join(t.TempDir(), "stop"), filepath.Join(t.TempDir(), "left")
	for _, fifo := range []string{stop, left} {
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	leaver, env := self(t, "leave", line.hold()+"printf r >"+left+"; read x <"+stop)
	script := "exec 8<&0; " + leaver + " & read x <" + left + "; " + deferReply
	opts := helper.Options{Command: sh(script), Timeout: 30 * time.Second, Env: env}
	reply, err := helper.Run(bounded(t), opts, helper.Input{Inventory: strings.Repeat("x", 1<<20)})
	if err != nil || reply.Decision() != helper.Defer {
		t.Errorf("got %v, %v", reply, err)
	}
	select {
	case <-line.gone:
		t.Error("the child is gone: this test shows nothing")
	default:
	}
	f, err := os.OpenFile(stop, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	await(t, "the end of the child", line.gone)
}

func TestHelperDiesWithTheWorker(t *testing.T) {
	line := newLifeline(t)
	command, env := self(t, "worker", sh(line.hold()+"exec sleep 1000"))
	argv, err := shellquote.Split(command)
	if err != nil {
		t.Fatal(err)
	}
	worker := exec.Command(argv[0], argv[1:]...)
	worker.Env = append(os.Environ(), env...)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the start of the helper", line.ready)
	if err := worker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = worker.Wait()
	await(t, "the death of the helper", line.gone)
}

func TestRunLeaksNoDescriptors(t *testing.T) {
	kept, err := os.Create(filepath.Join(t.TempDir(), "kept"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = kept.Close() }()
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	run := func(script string) (*helper.Reply, error) {
		return helper.Run(bounded(t), helper.Options{Command: sh(script), Timeout: 200 * time.Millisecond, MaxOutput: 1000}, helper.Input{})
	}
	_, _ = run(deferReply)
	before := count()
	for range 5 {
		_, _ = run(deferReply)
		_, _ = run("exit 1")
		_, _ = run("sleep 1000")
		_, _ = run("head -c 2000 /dev/zero")
		_, _ = helper.Run(bounded(t), helper.Options{Command: "/nope"}, helper.Input{})
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	reply, err := helper.Run(bounded(t), helper.Options{Command: sh(`printf '{"defer":true,"msg":"%s"}' "$(cd /proc/self/fd; readlink * | tr '\n' ' ')"`)}, helper.Input{})
	if err != nil || !strings.Contains(reply.Msg, "pipe:") || strings.Contains(reply.Msg, kept.Name()) {
		t.Errorf("the helper has %v, %v", reply, err)
	}
}

func TestRunLogsStandardError(t *testing.T) {
	var log bytes.Buffer
	opts := helper.Options{
		Command: sh(`printf 'first\n\033[2Jsecond\npassword=hunter2\n' >&2; head -c 100000 /dev/zero | tr '\0' x >&2; echo '{"defer":true,"extra":1}'`),
		Log:     slog.New(slog.NewJSONHandler(&log, nil)),
	}
	if _, err := helper.Run(bounded(t), opts, helper.Input{Identity: "n1"}); err != nil {
		t.Fatal(err)
	}
	out := log.String()
	for _, want := range []string{"first", `\\x1b[2Jsecond`, "bytes_dropped", `ignored: \"extra\"`, `"node":"n1"`} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in %s", want, out)
		}
	}
	if strings.Contains(out, "hunter2") || strings.Contains(out, "\x1b") || len(out) > 4000 {
		t.Errorf("log of %d bytes: %.2000s", len(out), out)
	}
}

func TestRunWarnsOfAForeignIdentity(t *testing.T) {
	command := sh(fmt.Sprintf(`echo '{"configuration":{%s,"identity":"other"}}'`, off))
	reply, err := helper.Run(bounded(t), helper.Options{Command: command}, helper.Input{Identity: "n1"})
	if err != nil || len(reply.Warnings) != 1 || !strings.Contains(reply.Warnings[0], `"other"`) {
		t.Errorf("got %v, %v", reply, err)
	}
	reply, err = helper.Run(bounded(t), helper.Options{Command: command}, helper.Input{Identity: "other"})
	if err != nil || len(reply.Warnings) != 0 {
		t.Errorf("got %v, %v", reply, err)
	}
}

// TestHelperIsNoService: what the service manager gave this process is not for its children.
func TestHelperIsNoService(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/run/x")
	t.Setenv("WATCHDOG_USEC", "1")
	t.Setenv("WATCHDOG_PID", "1")
	command := sh(`test -z "$NOTIFY_SOCKET$WATCHDOG_USEC$WATCHDOG_PID" || exit 1; ` + deferReply)
	if reply, err := helper.Run(bounded(t), helper.Options{Command: command, Timeout: 30 * time.Second}, helper.Input{}); err != nil || reply.Decision() != helper.Defer {
		t.Errorf("got %v, %v", reply, err)
	}
}
