package crashtests

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"provctl/crashtests/powerloss"
	"provctl/crashtests/trace"
	"provctl/crashtests/tracefs"
	"provctl/internal/fleet"
)

// mine tells whether any case of this test is to run.
func mine(t *testing.T) bool {
	only := os.Getenv(caseEnv)
	return only == "" || strings.HasPrefix(only, t.Name()+"/")
}

// wide tells whether a sweep makes all of its cases: a named one may be of the full tier.
func wide() bool { return full() || os.Getenv(caseEnv) != "" }

// missing reports what this machine lacks for a test: under CI that is a failure, elsewhere it is said and the test ends.
func missing(t *testing.T, err error) bool {
	t.Helper()
	if err == nil {
		return false
	}
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Logf("NOT RUN: %v", err)
	return true
}

// fastDir is a directory in memory if there is one: what is written there for a simulated failure need not reach a disk.
func fastDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "provctl-crash-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// tracedSite is a site whose state directory is on a file system that traces.
type tracedSite struct {
	*site
	fs      *tracefs.FS
	trace   *trace.Trace
	backing string
	initial powerloss.Image
	ready   int // events when init had returned
}

// newTracedSite makes a site of one node, with a journal. The trace begins before init.
func newTracedSite(t *testing.T, o options) *tracedSite {
	t.Helper()
	ts := &tracedSite{trace: trace.New(), backing: fastDir(t)}
	var err error
	if ts.initial, err = powerloss.Load(ts.backing); err != nil {
		t.Fatal(err)
	}
	if ts.fs, err = tracefs.Mount(ts.backing, t.TempDir(), ts.trace); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ts.fs.Unmount(); err != nil {
			t.Error(err)
		}
	})
	o.nodes, o.worker.StateDir = 1, ts.fs.Dir
	o.hook = func(_ *site, c fleet.Call) fleet.Fault {
		if fleet.IsEffect(c.Action) {
			kind := trace.End
			if c.Phase == fleet.PhaseBegin {
				kind = trace.Begin
			}
			ts.trace.Add(trace.Event{Source: c.Node, Kind: kind, Action: c.Action, Request: c.RequestID})
		}
		return fleet.Fault{}
	}
	ts.site = newSite(t, o)
	ts.ready = ts.trace.Len()
	return ts
}

// finish waits until the node is provisioned and the worker has nothing left to do for it.
func (ts *tracedSite) finish() {
	ts.t.Helper()
	ts.awaitFleet("the node has joined", func(f fleet.State) bool { return f.Count(joined) == 1 })
	ts.await("the job has ended", func() bool {
		v, err := ts.tryView()
		return err == nil && v.Counts.Results["provisioned"] > 0 && len(v.Items) == 0
	})
}

// begun are the requests of the effects that had begun before event n ended, in order.
func begun(events []trace.Event, n int) (requests []string) {
	for _, e := range events[:n] {
		if e.Kind == trace.Begin {
			requests = append(requests, e.Request)
		}
	}
	return requests
}

// exitOf is a command's exit code, -1 if it was killed or did not run.
func exitOf(err error) int {
	var exit *exec.ExitError
	if err == nil {
		return 0
	}
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}
