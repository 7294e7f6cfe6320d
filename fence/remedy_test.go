package fence_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"provctl/internal/roottest"
)

// TestRemedies tries directories in which nobody can make a lock, and wants the reason and what to do about it.
func TestRemedies(t *testing.T) {
	if roottest.Missing(t, "what other users and full disks are told") {
		return
	}
	dir, err := os.MkdirTemp("", "fence") // where other users come, too
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755)) //nolint:gosec // see above
	program := filepath.Join(dir, "test")
	b, err := os.ReadFile(os.Args[0])
	must(t, err)
	must(t, os.WriteFile(program, b, 0o755)) //nolint:gosec // another user runs it
	mount := func(name, options string) string {
		path := filepath.Join(dir, name)
		must(t, os.Mkdir(path, 0o700))
		roottest.Tmpfs(t, path, "size=4k,"+options)
		return path
	}
	full := mount("full", "mode=700")
	must(t, os.WriteFile(filepath.Join(full, "x"), make([]byte, 4096), 0o600))
	frozen := mount("frozen", "ro")
	others := filepath.Join(dir, "others")
	must(t, os.Mkdir(others, 0o700))
	for _, c := range []struct {
		dir  string
		user uint32
		want []string
	}{
		{full, 0, []string{"no space left on device", "free some space"}},
		{frozen, 0, []string{"read-only file system", "mount it for writing"}},
		{others, 4711, []string{"permission denied", "belongs to user id 0 and this is user id 4711", "run it as that user"}},
		{filepath.Join(dir, "missing"), 0, []string{"no such file", "must exist"}},
	} {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), holdEnv+"="+c.dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.user, Gid: c.user}}
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("%s: the lock was taken", c.dir)
		}
		for _, want := range c.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: it says %q, want %q", c.dir, out, want)
			}
		}
	}
}
