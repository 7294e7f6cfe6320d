// Package roottest is for tests that need root: other users' files, small disks. Without root they say that they did not run, and under CI
// they fail, so that none looks green unseen.
package roottest

import (
	"os"
	"syscall"
	"testing"
)

// Missing reports whether this process is not root; what is not tested then is said, or under CI=true ends the test.
func Missing(t testing.TB, untested string) bool {
	t.Helper()
	if os.Geteuid() == 0 {
		return false
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("not root: run the tests as root, or this is not tested: %s", untested)
	}
	t.Logf("NOT RUN, for want of root: %s", untested)
	return true
}

// Tmpfs mounts a file system in memory on a directory until the test ends; options as in tmpfs(5).
func Tmpfs(t testing.TB, dir, options string) {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Fatalf("mount a tmpfs on %s: %v", dir, err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}
