package journal_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"provctl/internal/roottest"
	"provctl/journal"
	"provctl/journal/journaltest"
	"provctl/receipt"
)

// roomy is a closed journal that is worth compacting.
func roomy(t *testing.T) (path string) {
	t.Helper()
	dir := t.TempDir()
	clock := journaltest.NewClock()
	j := opened(t, dir, journal.Options{Now: clock.Now})
	for round := range 10 {
		var nodes []receipt.NodeID
		for i := range 400 {
			nodes = append(nodes, receipt.NodeID(fmt.Sprintf("node-%d-%d.example.net", round, i)))
		}
		must(t, admit(t, j, nodes...))
	}
	rec, err := j.Recover(t.Context(), journal.RecoverPolicy{StaleAfter: time.Minute})
	must(t, err)
	if len(rec.Items) != 0 {
		t.Fatalf("%d jobs are stale already", len(rec.Items))
	}
	clock.Add(time.Hour)
	_, err = j.Recover(t.Context(), journal.RecoverPolicy{StaleAfter: time.Minute})
	must(t, err)
	clock.Add(time.Hour)
	_, err = j.Prune(t.Context(), clock.Now())
	must(t, err)
	must(t, j.Close())
	return filepath.Join(dir, "journal.db")
}

func owner(t *testing.T, path string) (uid, gid uint32, mode os.FileMode, size int64) {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatalf("%T", info.Sys())
	}
	return st.Uid, st.Gid, info.Mode().Perm(), info.Size()
}

// asRoot reports whether owners can be changed here; where they cannot it says so, and in CI it fails.
func asRoot(t *testing.T) bool {
	t.Helper()
	return !roottest.Missing(t, "files of other owners; modes are")
}

func TestCompactionKeepsOwnerAndMode(t *testing.T) {
	t.Parallel()
	path := roomy(t)
	wantUID, wantGID := uint32(os.Geteuid()), uint32(os.Getegid())
	if asRoot(t) {
		wantUID, wantGID = 12345, 23456
		must(t, os.Chown(path, int(wantUID), int(wantGID)))
	}
	must(t, os.Chmod(path, 0o640))
	_, _, _, big := owner(t, path)
	j, err := journal.Open(filepath.Dir(path), journal.Options{})
	must(t, err)
	must(t, j.Close())
	uid, gid, mode, small := owner(t, path)
	if small > big/2 {
		t.Errorf("%d bytes became %d: it was not compacted", big, small)
	}
	if uid != wantUID || gid != wantGID || mode != 0o640 {
		t.Errorf("the compacted journal is %d:%d %s, want %d:%d 0640", uid, gid, mode, wantUID, wantGID)
	}
}

// TestNoCompactionWithoutTheOwner opens another user's journal on a thread that may read all and change no owner.
func TestNoCompactionWithoutTheOwner(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	path := roomy(t)
	must(t, os.Chown(path, 12345, 23456))
	_, _, _, big := owner(t, path)
	var log bytes.Buffer
	done := make(chan error)
	go func() { // the thread ends with its goroutine
		runtime.LockOSThread()
		done <- func() error {
			if err := dropChown(); err != nil {
				return err
			}
			j, err := journal.Open(filepath.Dir(path), journal.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				return err
			}
			return j.Close()
		}()
	}()
	must(t, <-done)
	if uid, gid, _, size := owner(t, path); uid != 12345 || gid != 23456 || size != big {
		t.Errorf("the journal is %d:%d with %d bytes, it was 12345:23456 with %d", uid, gid, size, big)
	}
	if !strings.Contains(log.String(), "not compacted") || !strings.Contains(log.String(), "owner 12345:23456") {
		t.Errorf("log: %s", &log)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".journal-*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// dropChown takes the right to change owners from this thread.
func dropChown() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&head, &sets[0]); err != nil {
		return err
	}
	sets[0].Effective &^= 1 << unix.CAP_CHOWN
	return unix.Capset(&head, &sets[0])
}

func TestInitForTheDirectorysOwner(t *testing.T) {
	t.Parallel()
	if !asRoot(t) {
		return
	}
	dir := t.TempDir()
	must(t, os.Chown(dir, 12345, 23456))
	_, err := journal.Init(dir)
	must(t, err)
	for range 2 {
		for _, name := range []string{"journal.db", "journal.marker"} {
			if uid, gid, mode, _ := owner(t, filepath.Join(dir, name)); uid != 12345 || gid != 23456 || mode != 0o600 {
				t.Errorf("%s is %d:%d %s", name, uid, gid, mode)
			}
		}
		j, err := journal.Open(dir, journal.Options{}) // root looks after it once
		must(t, err)
		_, err = j.RaiseEpoch()
		must(t, err)
		must(t, j.Close())
	}
}
