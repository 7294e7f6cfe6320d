package control_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"provctl/internal/control"
	"provctl/internal/roottest"
)

// TestGroupSocketOnAFullDisk: what passes by itself is no error of the configuration, after which a service stays down.
func TestGroupSocketOnAFullDisk(t *testing.T) {
	if roottest.Missing(t, "a full disk") {
		return
	}
	dir := openDir(t)
	roottest.Tmpfs(t, dir, "size=64k,nr_inodes=2,mode=755")
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
