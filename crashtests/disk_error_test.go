package crashtests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"provctl/crashtests/powerloss"
	"provctl/crashtests/trace"
	"provctl/crashtests/tracefs"
)

var (
	syncs  = tracefs.Of(trace.Sync, trace.DirSync)
	writes = tracefs.Of(trace.Write, trace.Truncate, trace.Create, trace.Mkdir, trace.Mknod)
)

// diskErrors are what goes wrong with a disk: from some operation on for good, or once.
var diskErrors = []struct {
	name  string
	fault tracefs.Fault
}{
	{"sync-fails", tracefs.Fault{Match: syncs, Err: syscall.EIO}},
	{"sync-fails-once", tracefs.Fault{Match: syncs, Err: syscall.EIO, Once: true}},
	{"disk-full", tracefs.Fault{Match: writes, Err: syscall.ENOSPC}},
	{"disk-full-once", tracefs.Fault{Match: writes, Err: syscall.ENOSPC, Once: true}},
	{"disk-gone", tracefs.Fault{Err: syscall.EIO}},
}

// TestSweep5DiskErrors has the n-th operation of a run fail, n rising until none does: the worker must end with an error, begin
// nothing after it, and go on once the disk is well again.
func TestSweep5DiskErrors(t *testing.T) {
	t.Parallel()
	if !wide() || !mine(t) || !needFUSE(t) {
		return
	}
	at, ns := 0, &rising{}
	total := 0
	labs(t, 6, 1, func() (func(*testing.T, *lab), string, bool) {
		for at < len(diskErrors) {
			n, ok := ns.next()
			if !ok || n > 2000 {
				at, ns = at+1, &rising{}
				continue
			}
			e, mine := diskErrors[at], ns
			name := fmt.Sprintf("%s-%d", e.name, n)
			if !wanted(t.Name() + "/" + name) {
				continue
			}
			total++
			return func(t *testing.T, l *lab) {
				fault := e.fault
				fault.Nth = n
				if !diskErrorCase(t, l, fault) {
					mine.survived(n)
				}
			}, name, true
		}
		return nil, "", false
	})
	count(t, "disk errors", total)
}

// diskErrorCase runs a worker into a fault, heals the disk and has the next one finish; false if the fault never came.
func diskErrorCase(t *testing.T, l *lab, fault tracefs.Fault) bool {
	t.Helper()
	tr := l.begin(t, alone, program)
	initial, err := powerloss.Load(tr.dir)
	if err != nil {
		t.Fatal(err)
	}
	tr.mirror.Fail(fault)
	code := tr.untilItEnds()
	hits := tr.mirror.Failed()
	if len(hits) == 0 {
		if code != 0 {
			t.Errorf("nothing failed and the worker ended with %d", code)
		}
		tr.judge()
		return false
	}
	events := tr.traceNow().Events()
	if code != 1 && !(code == 0 && tr.harmless(events, hits)) {
		t.Errorf("operation %s failed and the worker ended with %d, want 1", shown(events[hits[0]-1]), code)
	}
	nothingAfter(t, initial, events, hits[0])
	tr.mirror.Heal()
	tr.recover(program)
	return true
}

func shown(e trace.Event) string { return fmt.Sprintf("%d (%s %s)", e.N, e.Kind, e.Path) }

// untilItEnds runs a worker until it gives up, or until all is done and it was told to stop. It returns its exit code.
func (tr *trial) untilItEnds() int {
	tr.t.Helper()
	p := tr.start()
	for tick := newTick(tr.t); ; {
		select {
		case <-p.done:
			return p.cmd.ProcessState.ExitCode()
		case <-tr.ctx.Done():
			tr.t.Fatalf("the worker neither ends nor gets on: %s", tr.lab.nodes.State())
		case <-tick:
		}
		if tr.settledDown() {
			_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
			<-p.done
			return p.cmd.ProcessState.ExitCode()
		}
	}
}

// harmless: all that failed concerned the control socket's removal or the process id in the lock file, on which nothing depends.
func (tr *trial) harmless(events []trace.Event, hits []int) bool {
	for _, n := range hits {
		if e := events[n-1]; !strings.HasPrefix(e.Path, "worker.") {
			return false
		}
	}
	return true
}

// nothingAfter: an effect that begins after the failure must have left before it, so its receipt was durable by then.
func nothingAfter(t *testing.T, initial powerloss.Image, events []trace.Event, failed int) {
	t.Helper()
	late := begun(events, len(events))[len(begun(events, failed)):]
	if len(late) == 0 {
		return
	}
	durable := map[string]bool{}
	for c, err := range powerloss.Cases(initial, events[:failed-1], false) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Prefix != failed-1 || c.Name != powerloss.Synced {
			continue
		}
		dir := t.TempDir()
		if err := c.Image.Write(dir); err != nil {
			t.Fatal(err)
		}
		if durable, err = requestsIn(filepath.Join(dir, "journal.db")); err != nil {
			t.Fatal(err)
		}
	}
	for _, request := range late {
		if !durable[request] {
			t.Errorf("request %s began after operation %s had failed, and its receipt was not durable before", request, shown(events[failed-1]))
		}
	}
	if len(late) > 1 {
		t.Errorf("%d effects began after operation %s had failed: only one can have been on its way", len(late), shown(events[failed-1]))
	}
}

// TestSweep5Init has each operation of init fail in turn. On a healed disk it can be run again, or was complete.
func TestSweep5Init(t *testing.T) {
	t.Parallel()
	if !mine(t) || !needFUSE(t) {
		return
	}
	tried := 0
	for n := 1; ; n++ {
		name := fmt.Sprintf("%s/%d", t.Name(), n)
		if !wanted(name) && n < 1000 {
			continue
		}
		tried++
		m, backing := trace.New(), fastDir(t)
		fs, err := tracefs.Mount(backing, t.TempDir(), m)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = fs.Unmount() })
		fs.Fail(tracefs.Fault{Nth: n, Err: []syscall.Errno{syscall.EIO, syscall.ENOSPC}[n%2]})
		out, err := exec.CommandContext(t.Context(), program, "init", "--state-dir", fs.Dir).CombinedOutput()
		survived := len(fs.Failed()) == 0
		if code := exitOf(err); (code == 0) != survived || code != 0 && code != 1 {
			t.Errorf("exit %d: %s\nCASE='%s'", code, out, name)
		}
		fs.Heal()
		again, err := exec.CommandContext(t.Context(), program, "init", "--state-dir", fs.Dir).CombinedOutput()
		look, lookErr := exec.CommandContext(t.Context(), program, "inspect", "--state-dir", fs.Dir).CombinedOutput()
		if complete := exitOf(err) == 0 || strings.Contains(string(again), "exists"); !complete || exitOf(lookErr) != 0 {
			t.Errorf("healed: init says %s, inspect %s\nCASE='%s'", again, look, name)
		}
		whole(t, "init", string(out)+string(again)+string(look))
		if err := fs.Unmount(); err != nil {
			t.Fatal(err)
		}
		if survived {
			break
		}
	}
	if tried < 10 && os.Getenv(caseEnv) == "" {
		t.Errorf("init did only %d operations", tried-1)
	}
	count(t, "disk errors", tried-1)
}

// TestSweep5SmallDisk gives the state directory ever larger file systems until a run fits.
func TestSweep5SmallDisk(t *testing.T) {
	t.Parallel()
	if !wide() || !mine(t) || !needFUSE(t) {
		return
	}
	const step = 12 << 10
	sizes := &rising{last: 2}
	labs(t, 4, 1, func() (func(*testing.T, *lab), string, bool) {
		n, ok := sizes.next()
		for ok && !wanted(fmt.Sprintf("%s/%d-bytes", t.Name(), n*step)) {
			if n, ok = sizes.next(); n > 1000 {
				ok = false
			}
		}
		return func(t *testing.T, l *lab) {
			if !smallDiskCase(t, l, n*step) {
				sizes.survived(n)
			}
		}, fmt.Sprintf("%d-bytes", n*step), ok
	})
	count(t, "small disks", sizes.beyond)
}

// smallDiskCase tells whether the disk was too small.
func smallDiskCase(t *testing.T, l *lab, size int) (small bool) {
	t.Helper()
	var disk string
	s := *alone
	s.faults = func(lightNodes, []string) {
		disk = l.nextDisk()
		mountDisk(t, disk, "tmpfs", "tmpfs", fmt.Sprintf("size=%d", size))
	}
	tr := l.begin(t, &s, program)
	code := tr.untilItEnds()
	if code == 0 {
		tr.judge()
		return false
	}
	if code != 1 {
		t.Errorf("the worker ended with %d, want 1", code)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT, "size=16m"); err != nil {
		t.Fatal(err)
	}
	tr.recover(program)
	return true
}
