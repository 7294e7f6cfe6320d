package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// abortEnv turns the test below into the process that is to be aborted: "kept" with its secrets kept in memory, "open" without.
const abortEnv = "PROVCTL_TEST_ABORT"

// TestSecurityAbortLeavesNoCore aborts a process of each kind, both of which began with the right to write a core of any length.
func TestSecurityAbortLeavesNoCore(t *testing.T) {
	if how := os.Getenv(abortEnv); how != "" {
		abort(t, how)
	}
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil {
		t.Fatal(err)
	}
	here := !strings.ContainsAny(string(pattern), "|/") // else cores go elsewhere, and what the kernel was told is all there is to see
	for how, cores := range map[string]int{"kept": 0, "open": 1} {
		dir := t.TempDir()
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestSecurityAbortLeavesNoCore$")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), abortEnv+"="+how, "GOTRACEBACK=crash", "TMPDIR="+t.TempDir()) // it cannot tidy up
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGABRT {
			t.Fatalf("%s: ends with %v, want to be aborted: %s", how, err, out)
		}
		left, err := filepath.Glob(filepath.Join(dir, "core*"))
		if err != nil {
			t.Fatal(err)
		}
		if dumped := exit.Sys().(syscall.WaitStatus).CoreDump(); here && len(left) != cores || dumped && cores == 0 {
			t.Errorf("%s: left %v, dumped: %t", how, left, dumped)
		}
	}
}

// abort does not return.
func abort(t *testing.T, how string) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &limit); err != nil || limit.Max == 0 {
		t.Fatalf("this test needs a system that lets a process write a core: limit %+v, %v", limit, err)
	}
	if how == "kept" {
		if err := keepSecretsInMemory(); err != nil {
			t.Fatal(err)
		}
		dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		if err := errors.Join(err, unix.Getrlimit(unix.RLIMIT_CORE, &limit)); err != nil || dumpable != 0 || limit.Max != 0 {
			t.Fatalf("dumpable %d, limit %+v, %v", dumpable, limit, err)
		}
		if _, err := os.Readlink("/proc/self/exe"); err != nil { // what our own children are started from
			t.Fatal(err)
		}
	}
	if err := unix.Kill(os.Getpid(), unix.SIGABRT); err != nil {
		t.Fatal(err)
	}
	select {}
}
