package crashtests

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"provctl/crashtests/lightnode"
	"provctl/crashtests/oracle"
	"provctl/crashtests/tracefs"
)

type lightNodes = *lightnode.Nodes

// newTick polls what has no event of its own.
func newTick(t testing.TB) <-chan time.Time {
	tick := time.NewTicker(100 * time.Millisecond)
	t.Cleanup(tick.Stop)
	return tick.C
}

// nextDisk is the directory that the trial being begun will have its state in.
func (l *lab) nextDisk() string { return filepath.Join(l.dir, fmt.Sprintf("t%d", l.count), "disk") }

// mountDisk mounts a file system until the test, or this process, ends. The directory is made.
func mountDisk(t testing.TB, dir, source, kind, options string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	guard, err := tracefs.NewGuard(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := guard.End(); err != nil {
			t.Error(err)
		}
	})
	mount := exec.CommandContext(t.Context(), "mount", "-t", kind, "-o", options, source, dir)
	if out, err := mount.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", mount.Args, err, out)
	}
}

// loopDevices tells whether file systems in files can be made and mounted here.
func loopDevices() error {
	_, err := os.Stat("/dev/loop-control")
	for _, tool := range []string{"mkfs.ext4", "mount", "umount"} {
		_, e := exec.LookPath(tool)
		err = errors.Join(err, e)
	}
	if err == nil && os.Geteuid() != 0 {
		err = errors.New("only root can mount")
	}
	if err != nil {
		return fmt.Errorf("no ext4 on loop devices here: %w", err)
	}
	return nil
}

// newExt4 makes a file system in a file.
func newExt4(t testing.TB) (image string) {
	t.Helper()
	image = filepath.Join(t.TempDir(), "ext4")
	err := os.WriteFile(image, nil, 0o600)
	if err == nil {
		err = os.Truncate(image, 24<<20)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "mkfs.ext4", "-q", "-F", "-m", "0", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	return image
}

// TestSweep4Ext4 kills a worker on a real file system, takes the disk as it is at that moment, without unmounting, and has the next
// worker go on with that.
func TestSweep4Ext4(t *testing.T) {
	t.Parallel()
	if !wide() || !mine(t) || missing(t, loopDevices()) || !needFUSE(t) {
		return
	}
	events := &rising{stride: 5}
	cases := 0
	labs(t, 2, 1, func() (func(*testing.T, *lab), string, bool) {
		for {
			n, ok := events.next()
			if !ok || n > 2000 {
				return nil, "", false
			}
			name := fmt.Sprintf("event-%d", n)
			if !wanted(t.Name() + "/" + name) {
				continue
			}
			cases++
			return func(t *testing.T, l *lab) {
				if !ext4Case(t, l, n) {
					events.survived(n)
				}
			}, name, true
		}
	})
	count(t, "kills on ext4", cases)
}

func ext4Case(t *testing.T, l *lab, n int) (killed bool) {
	t.Helper()
	image, disk := newExt4(t), ""
	s := *alone
	s.faults = func(lightNodes, []string) {
		disk = l.nextDisk()
		mountDisk(t, disk, image, "ext4", "loop")
	}
	tr := l.begin(t, &s, program)
	flush(t, disk) // what init has synced did not get through
	tr.mirror.SyncThrough()
	tr.killAt(n)
	if !tr.play() {
		tr.judge()
		return false
	}
	add("kills", 1)
	b, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	taken := image + ".taken"
	if err := os.WriteFile(taken, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tr.mirror.Unmount(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil { // whoever still has something open there keeps what is no longer looked at
		t.Fatal(err)
	}
	// What a look found in the dead worker's files was written, but perhaps never synced, and acknowledged to nobody: the disk that was taken
	// need not have it. Such looks are judged where the same files stay.
	tr.run.Looks = slices.DeleteFunc(tr.run.Looks, func(l oracle.Look) bool { return l.Report.Worker == nil })
	mountDisk(t, disk, taken, "ext4", "loop")
	tr.recover(program)
	return true
}

// flush writes a whole file system's pending changes to its device.
func flush(t testing.TB, dir string) {
	t.Helper()
	d, err := os.Open(dir)
	if err == nil {
		err = errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}
