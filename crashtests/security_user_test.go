package crashtests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"provctl/internal/fleet"
)

// Ids that no account has.
const (
	serviceUser = 54320
	controlGID  = 54321
	memberUser  = 54322
	otherUser   = 54323
)

// users is a site whose worker runs as a service's user does, with a directory that all users may enter.
type users struct {
	*site
	open    string // holds the program, and the group's socket in run
	program string
	socket  string
}

func newUsers(t *testing.T) users {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test starts processes of other users: run it as root")
	}
	u := users{open: t.TempDir()}
	u.program, u.socket = filepath.Join(u.open, "provctl"), filepath.Join(u.open, "run", "control.sock")
	u.site = newSite(t, options{nodes: 1, worker: fleet.WorkerOptions{
		Values: short(map[string]any{"control_group": fmt.Sprint(controlGID), "control_socket": u.socket}),
	}})
	binary := read(t, program)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	syscall.ForkLock.RLock() // no child that is forked meanwhile has it open for writing, for then it could not be run
	err := os.WriteFile(u.program, []byte(binary), 0o755)
	syscall.ForkLock.RUnlock()
	must(err)
	must(os.Mkdir(filepath.Join(u.open, "run"), 0o755))
	must(os.Chown(filepath.Join(u.open, "run"), serviceUser, serviceUser))
	top := filepath.Dir(filepath.Dir(u.log)) // of all that the test makes
	must(os.Chmod(top, 0o755))
	must(filepath.WalkDir(filepath.Dir(u.log), func(path string, _ fs.DirEntry, err error) error {
		err = errors.Join(err, os.Lchown(path, serviceUser, serviceUser)) // the fleet runs as root, to whom it makes no difference
		if errors.Is(err, fs.ErrNotExist) {                               // a file of a node that runs
			return nil
		}
		return err
	}))
	must(os.Chmod(filepath.Dir(u.log), 0o755))
	return u
}

// as runs a command as somebody and returns all it printed and its exit code.
func (u users) as(uid uint32, groups []uint32, args ...string) (string, int) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin", "USER=somebody"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: groups}}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		u.t.Fatalf("%v: %v", args, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// startAs begins a life of the worker as the service's user, with more arguments.
func (u users) startAs(args ...string) *process {
	u.t.Helper()
	out, err := os.OpenFile(u.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		u.t.Fatal(err)
	}
	defer out.Close()
	p := &process{done: make(chan struct{})}
	p.cmd = exec.Command(u.program, append([]string{"run", "--config", u.files.Config, "--choria-config", u.files.ChoriaConfig}, args...)...)
	p.cmd.Stderr, p.cmd.Dir = out, "/"
	p.cmd.Env = []string{"PATH=/usr/bin:/bin", "USER=provctl"}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: serviceUser, Gid: serviceUser, Groups: []uint32{serviceUser, controlGID}}}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := p.cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	u.worker = p
	return p
}

// TestSecurityLocalUsers has other users of the host try what they can: nothing of the worker's can be read, and it takes orders from
// the members of its control group alone, under their own names.
func TestSecurityLocalUsers(t *testing.T) {
	t.Parallel()
	u := newUsers(t)
	p := u.startAs()
	u.awaitFleet("the node is provisioned", func(st fleet.State) bool { return st.Count(joined) == 1 })
	db := filepath.Join(u.files.StateDir, "journal.db")
	proc := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	stranger, member := []uint32{otherUser}, []uint32{memberUser, controlGID}
	for _, c := range []struct {
		name   string
		uid    uint32
		groups []uint32
		args   []string
		says   string
	}{
		{"the journal", otherUser, stranger, []string{"cat", db}, "Permission denied"},
		{"the journal, by a member", memberUser, member, []string{"cat", db}, "Permission denied"},
		{"the list of files", otherUser, stranger, []string{"ls", u.files.StateDir}, "Permission denied"},
		{"the lock", otherUser, stranger, []string{"flock", "-n", filepath.Join(u.files.StateDir, "worker.lock"), "true"}, "Permission denied"},
		{"the settings", otherUser, stranger, []string{"cat", u.files.Config}, "Permission denied"},
		{"a second worker", otherUser, stranger, []string{u.program, "run", "--config", u.files.Config}, "permission denied"},
		{"inspect", otherUser, stranger, []string{u.program, "inspect", "--state-dir", u.files.StateDir}, "permission denied|not permitted"},
		{"inspect, by a member without the socket", memberUser, member, []string{u.program, "inspect", "--state-dir", u.files.StateDir}, "permission denied|not permitted"},
		{"pause", otherUser, stranger, []string{u.program, "pause", "--reason", "x", "--state-dir", u.files.StateDir}, "permission denied|not permitted"},
		{"the group's socket", otherUser, stranger, []string{u.program, "inspect", "--socket", u.socket}, "not permitted"},
		{"removing the group's socket", memberUser, member, []string{"rm", "-f", u.socket}, "Permission denied"},
		{"another socket in its place", memberUser, member, []string{"ln", "-sf", "/tmp/other", u.socket}, "Permission denied"},
		{"its environment, by its own user", serviceUser, nil, []string{"cat", proc + "environ"}, "Permission denied"},
		{"its memory, by its own user", serviceUser, nil, []string{"head", "-c1", proc + "mem"}, "Permission denied"},
	} {
		out, code := u.as(c.uid, c.groups, c.args...)
		said := false
		for _, s := range strings.Split(c.says, "|") {
			said = said || strings.Contains(out, s)
		}
		if code == 0 || !said {
			t.Errorf("%s: exit %d: %.400s", c.name, code, out)
		}
		whole(t, c.name, out)
		u.silent(t, c.name, out)
	}
	if out, code := u.as(memberUser, member, u.program, "inspect", "--socket", u.socket); code != 0 || !strings.Contains(out, "running") {
		t.Errorf("a member's inspect: exit %d: %s", code, out)
	}
	if out, code := u.as(memberUser, member, u.program, "pause", "--reason", "works at the rack", "--operator", "root", "--socket", u.socket); code != 0 {
		t.Errorf("a member's pause: exit %d: %s", code, out)
	}
	out, code := u.provctl("audit", "--state-dir", u.files.StateDir)
	if code != 0 || !strings.Contains(out, fmt.Sprintf("uid %d (as root)", memberUser)) {
		t.Errorf("who paused is recorded as: exit %d: %s", code, out)
	}
	if code := u.stop(); code != 0 {
		t.Errorf("the worker stops with %d", code)
	}
	if _, err := os.Lstat(u.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the group's socket is left behind: %v", err)
	}
	u.noneTwice()
}

// TestSecurityPlantedLinks has a user plant links to the journal where the worker is to write its process id or its log.
func TestSecurityPlantedLinks(t *testing.T) {
	t.Parallel()
	u := newUsers(t)
	shared := filepath.Join(u.open, "shared") // as /tmp, on a kernel that does not protect links
	if err := errors.Join(os.Mkdir(shared, 0o700), os.Chmod(shared, 0o777)); err != nil {
		t.Fatal(err)
	}
	db, link := filepath.Join(u.files.StateDir, "journal.db"), filepath.Join(shared, "provctl.out")
	before := []byte(read(t, db))
	if out, code := u.as(otherUser, nil, "ln", "-s", db, link); code != 0 {
		t.Fatal(out)
	}
	settings := read(t, u.files.Config)
	for name, c := range map[string]struct {
		settings string
		args     []string
		code     int
	}{
		"the pid file": {settings, []string{"--pid", link}, 1},
		"the log":      {settings + "\nlogfile: " + link + "\n", nil, 78},
	} {
		write(t, u.files.Config, c.settings)
		if code := u.exit(u.startAs(c.args...)); code != c.code {
			t.Errorf("%s: exit %d, want %d", name, code, c.code)
		}
		if !u.logged("remove the link") {
			t.Errorf("%s: the remedy is not told", name)
		}
		if !bytes.Equal(before, []byte(read(t, db))) {
			t.Errorf("%s: the journal was written through the link", name)
		}
		if err := os.Truncate(u.log, 0); err != nil {
			t.Fatal(err)
		}
	}
}
