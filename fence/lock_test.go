package fence_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"provctl/fence"
	"provctl/internal/roottest"
	"provctl/receipt"
)

// holdEnv makes the test binary a process that holds the lock of the named directory until its input ends.
const holdEnv = "PROVCTL_TEST_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdEnv); dir != "" {
		os.Exit(hold(dir))
	}
	os.Exit(m.Run())
}

func hold(dir string) int {
	l, err := fence.Acquire(dir)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = l.Release()
	return 0
}

type other struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startHolder runs another process that holds the lock, and returns once it says so.
func startHolder(t *testing.T, dir string) *other {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdEnv+"="+dir)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	o := &other{cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := o.out.ReadString('\n')
	must(t, err)
	if line != "held\n" {
		t.Fatalf("the other process says %q", line)
	}
	return o
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSecondProcessIsRefusedWithThePID(t *testing.T) {
	dir := t.TempDir()
	o := startHolder(t, dir)
	_, err := fence.Acquire(dir)
	var held *fence.HeldError
	if !errors.Is(err, fence.ErrHeld) || !errors.As(err, &held) {
		t.Fatalf("Acquire = %v, want ErrHeld", err)
	}
	if held.PID != o.cmd.Process.Pid || !strings.Contains(err.Error(), strconv.Itoa(held.PID)) {
		t.Errorf("holder is %d in %q, want %d", held.PID, err, o.cmd.Process.Pid)
	}
	must(t, o.in.Close())
	must(t, o.cmd.Wait())
	l, err := fence.Acquire(dir)
	must(t, err)
	must(t, l.Release())
}

func TestKilledHolderFreesTheLock(t *testing.T) {
	dir := t.TempDir()
	o := startHolder(t, dir)
	must(t, o.cmd.Process.Signal(syscall.SIGKILL))
	_ = o.cmd.Wait()
	l, err := fence.Acquire(dir)
	must(t, err)
	must(t, l.Check())
	must(t, l.Release())
}

func TestChildDoesNotInheritTheLock(t *testing.T) {
	dir := t.TempDir()
	l, err := fence.Acquire(dir)
	must(t, err)
	cmd := exec.Command("/bin/cat")
	in, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	must(t, l.Release())
	again, err := fence.Acquire(dir)
	if err != nil {
		t.Fatalf("a living child keeps the lock: %v", err)
	}
	must(t, again.Release())
}

func TestCheckNoticesALostLock(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, dir, lock string){
		"deleted": func(t *testing.T, _, lock string) { must(t, os.Remove(lock)) },
		"replaced": func(t *testing.T, _, lock string) {
			must(t, os.WriteFile(lock+".new", []byte("1\n"), 0o600))
			must(t, os.Rename(lock+".new", lock))
		},
		"moved": func(t *testing.T, _, lock string) { must(t, os.Rename(lock, lock+".old")) },
		"replaced by a link to it": func(t *testing.T, _, lock string) {
			must(t, os.Rename(lock, lock+".old"))
			must(t, os.Symlink(lock+".old", lock))
		},
		"directory removed": func(t *testing.T, dir, _ string) { must(t, os.RemoveAll(dir)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			must(t, os.Mkdir(dir, 0o700))
			l, err := fence.Acquire(dir)
			must(t, err)
			must(t, l.Check())
			harm(t, dir, l.Path())
			if err := l.Check(); !errors.Is(err, receipt.ErrFenced) {
				t.Errorf("Check = %v, want ErrFenced", err)
			}
			must(t, l.Release())
		})
	}
}

func TestReleaseTwiceAndUseAfter(t *testing.T) {
	dir := t.TempDir()
	l, err := fence.Acquire(dir)
	must(t, err)
	must(t, l.Release())
	must(t, l.Release())
	if err := l.Check(); !errors.Is(err, receipt.ErrFenced) {
		t.Errorf("Check after Release = %v", err)
	}
	if _, err := os.Stat(l.Path()); err != nil {
		t.Errorf("the lock file must stay: %v", err)
	}
	var none *fence.Lock
	if err := none.Check(); !errors.Is(err, receipt.ErrFenced) {
		t.Errorf("Check of nil = %v", err)
	}
}

func TestAcquireRefusesWhatItCannotLock(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing")
	link := filepath.Join(dir, "link")
	must(t, os.Mkdir(link, 0o700))
	must(t, os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(link, "worker.lock")))
	for _, d := range []string{missing, link} {
		if l, err := fence.Acquire(d); err == nil || !strings.Contains(err.Error(), d) {
			t.Errorf("Acquire(%s) = %v, %v; want an error that names it", d, l, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "elsewhere")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the link was followed: %v", err)
	}
}

// TestReadOnlyDirectory uses a directory that not even root may write to: one of /proc.
func TestReadOnlyDirectory(t *testing.T) {
	if l, err := fence.Acquire("/proc/self"); err == nil {
		t.Errorf("Acquire = %v, want an error", l)
	}
}

func TestGarbageInTheLockFile(t *testing.T) {
	dir := t.TempDir()
	o := startHolder(t, dir)
	must(t, os.WriteFile(filepath.Join(dir, "worker.lock"), []byte("-7\x00garbage"+strings.Repeat("9", 100)), 0o600))
	_, err := fence.Acquire(dir)
	var held *fence.HeldError
	if !errors.As(err, &held) || held.PID != o.cmd.Process.Pid {
		t.Errorf("Acquire = %v, want pid %d, as the kernel knows it", err, o.cmd.Process.Pid)
	}
	must(t, o.in.Close())
}

// TestLockFileBelongsToTheDirectorysOwner: root gives a verdict without a worker, and the worker's user must get the lock later.
func TestLockFileBelongsToTheDirectorysOwner(t *testing.T) {
	if roottest.Missing(t, "whether root locks the worker out") {
		return
	}
	dir := t.TempDir()
	must(t, os.Chown(dir, 4711, 4712))
	lock, err := fence.Acquire(dir)
	must(t, err)
	must(t, lock.Release())
	info, err := os.Stat(lock.Path())
	must(t, err)
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 4711 || st.Gid != 4712 {
		t.Errorf("the lock file belongs to %+v", info.Sys())
	}
}
