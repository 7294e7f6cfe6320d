package journal_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

// saved makes a backup file of an open journal.
func saved(t testing.TB, j *journal.Journal, file string) journal.Info {
	t.Helper()
	info, size, err := journal.Save(file, func(w io.Writer) (journal.Info, error) {
		c, err := j.Backup(t.Context())
		if err != nil {
			return journal.Info{}, err
		}
		n, err := io.Copy(w, c)
		if err == nil && n != c.Size {
			err = fmt.Errorf("%d bytes of %d", n, c.Size)
		}
		return c.Info, errors.Join(err, c.Close())
	}, journal.Verify)
	must(t, err)
	st, err := os.Stat(file)
	must(t, err)
	if st.Size() != size || st.Mode().Perm() != 0o600 || info.Path != file {
		t.Errorf("%s has %d bytes, mode %o; told %d and %+v", file, st.Size(), st.Mode().Perm(), size, info)
	}
	return info
}

// TestBackupUnderWork takes copies while lanes commit. Each is sound, of a moment between what was acknowledged before it was asked for
// and after it was there, and nothing of it is left in the state directory.
func TestBackupUnderWork(t *testing.T) {
	t.Parallel()
	dir, to := t.TempDir(), t.TempDir()
	j := opened(t, dir, journal.Options{})
	ctx, stop := context.WithCancel(t.Context())
	var lanes sync.WaitGroup
	for lane := range 4 {
		lanes.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				node := receipt.NodeID(fmt.Sprintf("lane-%d-%d", lane, i))
				if _, err := j.Admit(context.Background(), []journal.Sighting{{Node: node}}, 1000); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for n := range 8 {
		before := j.Info()
		info := saved(t, j, filepath.Join(to, fmt.Sprint(n)))
		if after := j.Info(); info.ID != before.ID || info.Seq < before.Seq || info.Seq > after.Seq || info.Epoch != before.Epoch {
			t.Errorf("the copy is %+v, the journal was %+v before and %+v after", info, before, after)
		}
	}
	stop()
	lanes.Wait()
	must(t, j.Close())
	left, err := filepath.Glob(filepath.Join(dir, ".journal-*"))
	if must(t, err); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// TestBackupHoldsNothing: an open copy that nobody reads keeps out the next copy and nothing else: the file does not grow for it, the journal
// closes, and what the copy says stays as it was.
func TestBackupHoldsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := opened(t, dir, journal.Options{})
	admit := func(n int) {
		t.Helper()
		for i := range n {
			_, err := j.SetPause(t.Context(), "me", fmt.Sprint("pause ", i, strings.Repeat("x", 900)))
			must(t, err)
		}
	}
	admit(3)
	c, err := j.Backup(t.Context())
	must(t, err)
	if _, err := j.Backup(t.Context()); !errors.Is(err, journal.ErrCopying) {
		t.Errorf("a second copy: %v", err)
	}
	st, err := os.Stat(filepath.Join(dir, "journal.db"))
	must(t, err)
	admit(50)
	grown, err := os.Stat(filepath.Join(dir, "journal.db"))
	if must(t, err); grown.Size() > st.Size() {
		t.Errorf("the file grew from %d to %d bytes", st.Size(), grown.Size())
	}
	must(t, j.Close())
	file := filepath.Join(t.TempDir(), "b")
	info, _, err := journal.Save(file, func(w io.Writer) (journal.Info, error) {
		_, err := io.Copy(w, c)
		return c.Info, err
	}, journal.Verify)
	must(t, err)
	must(t, c.Close())
	if info.Seq != c.Info.Seq {
		t.Errorf("the copy is at %d, was at %d", info.Seq, c.Info.Seq)
	}
	if _, err := j.Backup(t.Context()); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("of a closed journal: %v", err)
	}
}

// TestBackupShowsNothingUnacknowledged: of a commit that failed after bbolt took it, no copy is made.
func TestBackupShowsNothingUnacknowledged(t *testing.T) {
	t.Parallel()
	j := opened(t, t.TempDir(), journal.Options{})
	j.SetFault(func(point string) error {
		if point == "marker" {
			return errors.New("the disk is gone")
		}
		return nil
	})
	if _, err := j.SetPause(t.Context(), "me", "x"); !errors.Is(err, journal.ErrStopped) {
		t.Fatalf("the commit: %v", err)
	}
	if _, err := j.Backup(t.Context()); !errors.Is(err, journal.ErrStopped) {
		t.Errorf("a copy with what was never acknowledged: %v", err)
	}
}

// TestSaveLeavesNothing: whatever fails, there is no file of that name and no other.
func TestSaveLeavesNothing(t *testing.T) {
	t.Parallel()
	whole := newSample(t)
	good := func(w io.Writer) (journal.Info, error) { return journal.CopyTo(t.Context(), whole.dir, w) }
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	full := errors.New("no space left on device")
	for what, tc := range map[string]struct {
		fill   func(io.Writer) (journal.Info, error)
		verify func(string) error
		want   error
	}{
		"cut": {fill: func(w io.Writer) (journal.Info, error) {
			_, err := w.Write(whole.db[:len(whole.db)/2])
			return whole.snapshot.Info, err
		}, want: receipt.ErrDamaged},
		"no space":    {fill: func(io.Writer) (journal.Info, error) { return journal.Info{}, full }, want: full},
		"interrupted": {fill: func(w io.Writer) (journal.Info, error) { return journal.CopyTo(ended, whole.dir, w) }, want: context.Canceled},
		"not sound":   {fill: good, verify: func(string) error { return receipt.ErrDamaged }, want: receipt.ErrDamaged},
		"another one": {fill: func(w io.Writer) (journal.Info, error) {
			info, err := good(w)
			info.Seq++
			return info, err
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if tc.verify == nil {
				tc.verify = journal.Verify
			}
			_, _, err := journal.Save(filepath.Join(dir, "b"), tc.fill, tc.verify)
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("error is %v, want %v", err, tc.want)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left over: %v, %v", left, err)
			}
		})
	}
	there := filepath.Join(t.TempDir(), "b")
	must(t, os.WriteFile(there, []byte("mine"), 0o600))
	if _, _, err := journal.Save(there, good, journal.Verify); !errors.Is(err, os.ErrExist) {
		t.Errorf("over another file: %v", err)
	}
	if b, err := os.ReadFile(there); err != nil || string(b) != "mine" {
		t.Errorf("the other file is %q, %v", b, err)
	}
}

// TestSaveThatIsNotDurable: without a name that lasts there is no backup.
func TestSaveThatIsNotDurable(t *testing.T) {
	t.Parallel()
	whole, dir, failed := newSample(t), t.TempDir(), errors.New("the disk is gone")
	fill := func(w io.Writer) (journal.Info, error) { return journal.CopyTo(t.Context(), whole.dir, w) }
	_, _, err := journal.SaveWith(filepath.Join(dir, "b"), fill, journal.Verify, func(string) error { return failed })
	if !errors.Is(err, failed) {
		t.Errorf("error is %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// TestWriterOutwaitsReaders: a copy that takes as long as it may keeps no worker from starting.
func TestWriterOutwaitsReaders(t *testing.T) {
	t.Parallel()
	last := time.Duration(0)
	for _, size := range []int64{0, 1 << 20, 64 << 20, 1 << 30, 1 << 40} {
		reader, writer := journal.Patience(size)
		if reader < 10*time.Second || reader < last || writer < reader+10*time.Second {
			t.Errorf("of %d bytes a copy has %s, the writer waits %s", size, reader, writer)
		}
		last = reader
	}
	if last < time.Hour {
		t.Errorf("a terabyte has %s", last)
	}
}

// TestCopyOfAnotherMoment: what its marker does not agree with is not backed up.
func TestCopyOfAnotherMoment(t *testing.T) {
	t.Parallel()
	dir, older := worked(t)
	must(t, os.WriteFile(filepath.Join(dir, "journal.db"), older, 0o600))
	var n counted
	if _, err := journal.CopyTo(t.Context(), dir, &n); !errors.Is(err, receipt.ErrDamaged) || n > 0 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

type counted int

func (c *counted) Write(b []byte) (int, error) {
	*c += counted(len(b))
	return len(b), nil
}
