package journal

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"provctl/internal/roottest"
)

// TestRoom fills a small disk: a journal that could not grow is told of before anything is begun.
func TestRoom(t *testing.T) {
	if roottest.Missing(t, "a full disk") {
		return
	}
	dir := t.TempDir()
	roottest.Tmpfs(t, dir, "size=4m,mode=700")
	if err := Room(dir); err != nil {
		t.Errorf("without a journal: %v", err)
	}
	if _, err := Init(dir); err != nil {
		t.Fatal(err)
	}
	if err := Room(dir); err != nil {
		t.Errorf("on an empty disk: %v", err)
	}
	fill := func(leave int64) {
		t.Helper()
		var st syscall.Statfs_t
		if err := syscall.Statfs(dir, &st); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, int64(st.Bavail)*st.Bsize-leave), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fill(smallStep)
	if err := Room(dir); err != nil {
		t.Errorf("a small journal with room for a step: %v", err)
	}
	if err := os.Truncate(filepath.Join(dir, fileName), growSize); err != nil { // a hole takes no space
		t.Fatal(err)
	}
	if err := Room(dir); !errors.Is(err, ErrNoRoom) {
		t.Errorf("a journal that grows by %d on a disk with %d: %v", growSize, smallStep, err)
	}
	if err := os.Remove(filepath.Join(dir, "full")); err != nil {
		t.Fatal(err)
	}
	fill(0)
	if err := os.Truncate(filepath.Join(dir, fileName), 64<<10); err != nil {
		t.Fatal(err)
	}
	if err := Room(dir); !errors.Is(err, ErrNoRoom) {
		t.Errorf("on a full disk: %v", err)
	}
}
