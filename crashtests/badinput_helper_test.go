package crashtests

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"provctl/internal/fleet"
)

// hidden must not come out again, wherever a helper prints it.
const hidden = "5ecr3tw0rd"

// badHelpers are what a helper can do wrong, in shell; $input is what it was given, $here a directory of its own, say prints a line as it is. words are in
// the reason for which the node is then held.
var badHelpers = []struct {
	name, script string
	words        []string
}{
	{"hangs with a child", `sleep 1000 & echo $! >"$here/hangs"; sleep 1000`, []string{"timed out", "killed after 10s", "helper_timeout"}},
	{"prints garbage", `say 'ready to serve; password=` + hidden + ` eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJ4In0.c2ln'`, []string{"cannot be decoded", "not a JSON object", "one JSON object"}},
	{"prints half an object", `printf '{"defer":false,"configuration":{"a":'`, []string{"cannot be decoded"}},
	{"prints nothing", `:`, []string{"wrote nothing", "one JSON object"}},
	{"prints too much", `head -c 3000000 /dev/zero | tr '\0' x`, []string{"wrote too much", "more than 1048576 bytes"}},
	{"exits with 1", `echo 'cannot ask the database: password=` + hidden + ` was refused' >&2; exit 1`, []string{"exit code 1", "cannot ask the database", "standard error"}},
	{"is killed", `kill -9 $$`, []string{"killed by signal"}},
	{"prints a key twice", `say '{"defer":true,"defer":false}'`, []string{"cannot be decoded", "duplicate"}},
	{"writes a key in capitals", `say '{"Defer":true}'`, []string{"cannot be decoded", "write it as defer"}},
	{"prints null", `say null`, []string{"not a JSON object"}},
	{"decides nothing", `say '{}'`, []string{"the object is empty"}},
	{"has no configuration", `say '{"configuration":{}}'`, []string{"no verdict"}},
	{"breaks a line", `say '{"configuration":{"plugin.choria.server.provision":"false","loglevel":"info\nplugin.yaml=/etc/passwd"}}'`, []string{"loglevel", "line break"}},
	{"leaves provisioning unset", `say '{"configuration":{"loglevel":"info"}}'`, []string{"keeps the node in provisioning mode", "not set"}},
	{"leaves provisioning on", `say '{"configuration":{"plugin.choria.server.provision":"yes"}}'`, []string{"keeps the node in provisioning mode", "yes"}},
	{"delivers a certificate alone", `say '{"certificate":"x","configuration":{"plugin.choria.server.provision":"false"}}'`, []string{"certificate", "ca"}},
	{"mistypes a member", `say '{"defer":"yes"}'`, []string{"member defer"}},
	{"mistypes a value", `say '{"configuration":{"plugin.choria.server.provision":false}}'`, []string{"member configuration"}},
	{"names a path for a policy", `say '{"action_policies":{"../../../tmp/x.policy":"x"},"configuration":{"plugin.choria.server.provision":"false"}}'`, []string{"action_policies", "path"}},
	{"claims nonsense", `say '{"server_claims":{"exp":"soon"},"configuration":{"plugin.choria.server.provision":"false"}}'`, []string{"server_claims.exp", "not a number"}},
	{"claims every collective", `say '{"server_claims":{"collectives":["*"]},"configuration":{"plugin.choria.server.provision":"false"}}'`, []string{"server_claims.collectives", "not the name of a collective"}},
}

// TestBadHelpers has one node meet every bad helper: each time it gets no configuration, is held with the reason, and is taken
// again when an operator admits it. The key that it made the first time serves to the end.
func TestBadHelpers(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 1, worker: fleet.WorkerOptions{
		Values:        short(map[string]any{"helper_timeout": "10s"}),
		Configuration: map[string]string{"plugin.payload": hidden},
	}})
	node := s.fleet.Nodes()[0]
	here := t.TempDir()
	good := filepath.Join(here, "good")
	rename(t, s.files.Helper, good)
	behave := func(script string) {
		t.Helper()
		text := fmt.Sprintf("#!/bin/sh\ninput=$(cat)\nhere='%s'\nsay() { printf '%%s\\n' \"$1\"; }\ngood() { printf '%%s' \"$input\" | '%s'; }\n%s\n", here, good, script)
		write(t, s.files.Helper+".new", text)
		if err := os.Chmod(s.files.Helper+".new", 0o700); err != nil {
			t.Fatal(err)
		}
		rename(t, s.files.Helper+".new", s.files.Helper) // in one step: the program of a running worker
	}
	held := func(what string, words ...string) {
		t.Helper()
		s.await("the node is held because the helper "+what, func() bool {
			why := s.heldWhy(node)
			for _, w := range words {
				if !strings.Contains(why, w) {
					return false
				}
			}
			return why != ""
		})
		why := s.heldWhy(node)
		whole(t, "the reason", why)
		s.silent(t, "the reason", why)
		if !s.logged("run the helper") && !s.logged("build its configuration") {
			t.Errorf("%s: the log does not tell", what)
		}
		if n := s.begins(node, "configure") + s.begins(node, "restart"); n != 0 {
			t.Fatalf("the helper %s, and the node got %d effects", what, n)
		}
	}
	admit := func() {
		t.Helper()
		if out, code := s.provctl("admit", node, "--state-dir", s.files.StateDir, "--reason", "the helper was mended"); code != 0 {
			t.Fatalf("admit: exit %d: %s", code, out)
		}
	}
	// The worker checks the helper when it starts; what goes wrong with the file comes after.
	behave(badHelpers[0].script)
	s.start()
	for i, h := range badHelpers {
		if i > 0 {
			behave(h.script)
			admit()
		}
		held(h.name, h.words...)
	}
	behave("")
	if err := os.Chmod(s.files.Helper, 0o600); err != nil {
		t.Fatal(err)
	}
	admit()
	held("is not executable", "cannot be executed", "permission denied")
	remove(t, s.files.Helper)
	admit()
	held("is missing", "cannot be executed", "no such file", "check the path")
	gone(t, filepath.Join(here, "hangs"))

	// A helper that answers and leaves a child with its output has answered.
	behave(`good; sleep 1000 & echo $! >"$here/leaves"`)
	admit()
	s.awaitFleet("the node is provisioned", func(st fleet.State) bool { return st.Count(joined) == 1 })
	s.await("the job has ended", func() bool { return s.inspect().Counts.Results["provisioned"] == 1 })
	gone(t, filepath.Join(here, "leaves"))
	if n, want := s.inspect().Counts.Results["failed"], len(badHelpers)+2; n != want {
		t.Errorf("%d jobs failed, want %d", n, want)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.noneTwice()
	for _, a := range []string{"gen25519", "configure", "restart"} {
		if n := s.begins(node, a); n != 1 {
			t.Errorf("%s ran %d times", a, n)
		}
	}
	s.discreet()
	if strings.Contains(read(t, s.log), hidden) || strings.Contains(read(t, filepath.Join(s.files.StateDir, "journal.db")), hidden) {
		t.Error("log or journal repeat what a helper should not have printed, or the payload")
	}
}

// gone checks that the process whose number a helper wrote down has ended with the helper. A zombie has: it waits for whoever
// adopted it.
func gone(t *testing.T, file string) {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(read(t, file)))
	if err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil || strings.Contains(string(stat), ") Z ") {
		return
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	t.Errorf("process %d outlived its helper: %s", pid, stat)
}
