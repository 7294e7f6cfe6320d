package service

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Init is the program that becomes PID 1.
const Init = "/lib/systemd/systemd"

//go:embed boot.sh
var bootScript string

//go:embed remove.sh
var removeScript string

// ErrUnavailable is returned by Available where no machine can be booted; the error says what is missing.
var ErrUnavailable = errors.New("no systemd can be booted in namespaces here")

// Available tells whether this host has what a machine needs.
func Available() error {
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	if _, err := os.Stat(Init); err != nil {
		missing = append(missing, Init+" (package systemd)")
	}
	for _, tool := range []string{"systemctl", "journalctl", "systemd-analyze", "nsenter", "unshare", "setpriv", "mount", "pivot_root"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, tool)
		}
	}
	if b, err := os.ReadFile("/proc/filesystems"); err != nil || !strings.Contains(string(b), "\tcgroup2\n") {
		missing = append(missing, "cgroup v2")
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: it lacks %s", ErrUnavailable, strings.Join(missing, ", "))
	}
	return nil
}

// Machine is a root directory with the systemd that may run in it. Its methods may be called from several goroutines, except Boot and Cut.
type Machine struct {
	root   string // on the host; what is mounted in it shows in the machine alone
	cgroup string
	// console gets what PID 1 prints.
	console string

	mu   sync.Mutex
	init *exec.Cmd     // nil while the power is off
	done chan struct{} // closed when init has ended, and with it all of the machine's processes
}

// Boot starts systemd and returns when it answers; services may still be starting. The machine's directories /run, /tmp and /dev are new at
// each boot, all others are those of before.
func (m *Machine) Boot(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.init != nil {
		return errors.New("boot: the machine runs; Cut it first")
	}
	console, err := os.OpenFile(m.console, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("boot: %w", err)
	}
	defer console.Close()
	cmd := exec.Command("/bin/sh", "-c", bootScript, "boot", m.root, m.cgroup, Init)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "container=provctl-test", "LANG=C.UTF-8"}
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL, Setsid: true,
	}
	started, done := make(chan error), make(chan struct{})
	go func() {
		// The parent death signal comes when the thread ends that made the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(done)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("boot: %w", err)
	}
	m.init, m.done = cmd, done
	return m.awaitManager(ctx)
}

// awaitManager returns when systemd answers. Nothing that is seen from outside tells that moment, so it is asked.
func (m *Machine) awaitManager(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d/root/run/systemd/private", m.init.Process.Pid)); err == nil {
			if out, _, err := enter(ctx, m.init.Process.Pid, "systemctl", "is-system-running"); err == nil && strings.TrimSpace(out) != "offline" {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-m.done:
			return fmt.Errorf("boot: systemd ended (%s): %s", m.init.ProcessState, m.Console())
		case <-ctx.Done():
			return fmt.Errorf("boot: systemd does not answer: %w: %s", ctx.Err(), m.Console())
		}
	}
}

// Cut ends every process of the machine at once, as a power failure does, and returns when they are gone. What was written is still there:
// what a disk loses is the matter of other tests. It does nothing while the power is off.
func (m *Machine) Cut() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.init == nil {
		return nil
	}
	if err := m.init.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("cut: %w", err)
	}
	<-m.done
	m.init = nil
	// The cgroups are the host's memory of it.
	cmd := exec.Command("unshare", "-m", "/bin/sh", "-c", removeScript, "remove", m.root, m.cgroup)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cut: remove the cgroup %s: %w: %s", m.cgroup, err, out)
	}
	return nil
}

// Console is what PID 1 printed, before its journal was there.
func (m *Machine) Console() string {
	b, err := os.ReadFile(m.console)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Path is where a file of the machine is on the host, for those that are not on a file system mounted inside.
func (m *Machine) Path(file string) string { return filepath.Join(m.root, file) }

// Run runs a command in the machine as its superuser, and returns all it printed with its exit code.
func (m *Machine) Run(ctx context.Context, argv ...string) (out string, code int, err error) {
	m.mu.Lock()
	init := m.init
	m.mu.Unlock()
	if init == nil {
		return "", -1, fmt.Errorf("run %v: the machine is off", argv)
	}
	return enter(ctx, init.Process.Pid, argv...)
}

// enter runs a command in the namespaces of a process.
func enter(ctx context.Context, pid int, argv ...string) (out string, code int, err error) {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"-t", strconv.Itoa(pid), "-m", "-p", "-i", "-u", "-C", "-r", "-w", "--"}, argv...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "SYSTEMD_PAGER=", "SYSTEMD_COLORS=0", "USER=root", "HOME=/root"}
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return string(b), exit.ExitCode(), nil
	}
	if err != nil {
		return string(b), -1, fmt.Errorf("run %v: %w", argv, err)
	}
	return string(b), 0, nil
}
