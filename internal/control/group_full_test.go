package control_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"provctl/internal/control"
)

// TestGroupSocketOnAFullDisk: what passes by itself is no error of the configuration, after which a service stays down.
func TestGroupSocketOnAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("not root: run the tests as root, or nobody knows what a full disk does")
		}
		t.Log("not root: no disk to fill")
		return
	}
	dir := openDir(t)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,nr_inodes=2,mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	if err := os.WriteFile(filepath.Join(dir, "last"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "control.sock")
	_, err := control.ServeGroup(t.Context(), group(path), &fake{}, slog.New(slog.DiscardHandler))
	var refused *control.GroupError
	if err == nil || errors.As(err, &refused) || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), path) {
		t.Errorf("without an inode left it says %v", err)
	}
}
