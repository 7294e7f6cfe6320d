package fence

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestLookNamesTheHolderAndTakesNothing(t *testing.T) {
	dir := t.TempDir()
	if h, err := Look(dir); err != nil || h.PID != 0 {
		t.Fatalf("without a lock file: %+v, %v", h, err)
	}
	before := time.Now().Add(-time.Second)
	lock, err := Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	h, err := Look(dir)
	if err != nil || h.PID != os.Getpid() || h.Since.Before(before) || h.Since.After(time.Now().Add(time.Second)) {
		t.Errorf("while it is held: %+v, %v", h, err)
	}
	if err := lock.Check(); err != nil {
		t.Error(err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if h, err := Look(dir); err != nil || h.PID != 0 {
		t.Errorf("after its release: %+v, %v", h, err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, lockName)); err != nil || len(b) == 0 {
		t.Errorf("the lock file was touched: %q, %v", b, err)
	}
}

func TestFlockHolder(t *testing.T) {
	const locks = `1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF
2: FLOCK  ADVISORY  WRITE 12 08:01:77 0 EOF
3: FLOCK  ADVISORY  WRITE 13 fe:00:78 0 EOF
3: -> FLOCK  ADVISORY  WRITE 14 fe:00:79 0 EOF
4: FLOCK  ADVISORY  WRITE x fe:00:80 0 EOF
garbage
5: FLOCK  ADVISORY  WRITE 15 fe:00:81
`
	dev := unix.Mkdev(0xfe, 0)
	for _, c := range []struct {
		inode  uint64
		signed int
		want   int
	}{
		{77, 0, 0},   // a lock of another kind, and one on another device
		{77, 12, 12}, // the one that signed the file
		{78, 0, 13},
		{79, 0, 0}, // it only waits
		{80, 0, 0},
		{81, 0, 15},
		{82, 0, 0},
	} {
		if got, err := flockHolder(strings.NewReader(locks), dev, c.inode, c.signed); err != nil || got != c.want {
			t.Errorf("inode %d signed by %d is held by %d (%v), want %d", c.inode, c.signed, got, err, c.want)
		}
	}
}
