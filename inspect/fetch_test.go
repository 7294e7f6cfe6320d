package inspect_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"provctl/inspect"
	"provctl/inspect/inspecttest"
	"provctl/internal/control"
	"provctl/journal"
	"provctl/receipt"
)

// state is everything about a directory that writing could change.
func state(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		out[path] = fmt.Sprint(i.Mode(), i.Size(), i.ModTime().UnixNano())
		if i.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			out[path] += fmt.Sprintf(" %x", sha256.Sum256(b))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestFetchWithoutWorkerWritesNothing(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), time.Now())
	want := b.Unknown("n1.example.net", receipt.Configure, time.Hour)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	before := state(t, b.Dir)
	r, err := inspect.Fetch(t.Context(), b.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.Source != inspect.FromJournal || r.Worker != nil || len(r.Items) != 1 || r.Items[0].Receipt != want.ID || r.Items[0].Version != want.Version {
		t.Errorf("report is %+v", r)
	}
	if after := state(t, b.Dir); !maps.Equal(before, after) {
		t.Errorf("inspection changed the directory:\n%v\n%v", before, after)
	}
	// It must not keep a worker from starting either.
	j, err := journal.Open(b.Dir, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_ = j.Close()
}

func TestFetchThroughAWorker(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), time.Now())
	b.Serve()
	b.Unknown("n1.example.net", receipt.Configure, time.Hour)
	before := state(t, b.Dir)
	r, err := inspect.Fetch(t.Context(), b.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.Source != inspect.FromWorker || r.Worker == nil || r.Worker.PID != os.Getpid() || r.Blocked != 1 {
		t.Errorf("report is %+v", r)
	}
	if after := state(t, b.Dir); !maps.Equal(before, after) {
		t.Errorf("inspection changed the directory:\n%v\n%v", before, after)
	}
}

// While inspectors poll, the worker goes on committing, and each report is one consistent moment.
func TestFetchWhileTheWorkerWorks(t *testing.T) {
	b := inspecttest.New(t, t.TempDir(), time.Now())
	b.Serve()
	const nodes = 40
	failed := make(chan error, 2)
	for range cap(failed) {
		go func() {
			for {
				r, err := inspect.Fetch(t.Context(), b.Dir)
				switch {
				case err != nil:
					failed <- err
					return
				case r.Counts.Receipts["unknown"]+r.Counts.Receipts["pending"] != len(r.Items):
					failed <- fmt.Errorf("a report counts %v and lists %d", r.Counts.Receipts, len(r.Items))
					return
				case r.Blocked == nodes:
					failed <- nil
					return
				}
			}
		}()
	}
	for i := range nodes {
		b.Unknown(receipt.NodeID(fmt.Sprintf("n%d", i)), receipt.Configure, time.Hour)
	}
	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

func TestFetchErrors(t *testing.T) {
	t.Run("missing", func(t *testing.T) {
		dir := t.TempDir()
		if _, err := inspect.Fetch(t.Context(), dir); !errors.Is(err, journal.ErrMissing) || !errors.Is(err, receipt.ErrDamaged) {
			t.Errorf("an empty directory gives %v, want ErrMissing", err)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%v was made", left)
		}
	})
	t.Run("no directory", func(t *testing.T) {
		if _, err := inspect.Fetch(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, journal.ErrMissing) {
			t.Errorf("no directory gives %v, want ErrMissing", err)
		}
	})
	t.Run("damaged", func(t *testing.T) {
		b := inspecttest.New(t, t.TempDir(), time.Now())
		path := b.Info().Path
		_ = b.Close()
		if err := os.WriteFile(path, []byte("not a journal at all"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := inspect.Fetch(t.Context(), b.Dir); !errors.Is(err, receipt.ErrDamaged) {
			t.Errorf("a damaged journal gives %v, want ErrDamaged", err)
		}
	})
	t.Run("hung", func(t *testing.T) {
		b := inspecttest.New(t, t.TempDir(), time.Now())
		l, err := net.Listen("unix", control.SocketPath(b.Dir)) // takes connections and never answers
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if _, err := (inspect.Reader{Dir: b.Dir, Patience: 50 * time.Millisecond}).Report(t.Context()); !errors.Is(err, control.ErrHung) {
			t.Errorf("a hung worker gives %v, want ErrHung", err)
		}
	})
	t.Run("dead socket", func(t *testing.T) {
		b := inspecttest.New(t, t.TempDir(), time.Now())
		_ = b.Close()
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: control.SocketPath(b.Dir), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		_ = l.Close()
		if r, err := inspect.Fetch(t.Context(), b.Dir); err != nil || r.Source != inspect.FromJournal {
			t.Errorf("with a dead worker's socket: %v, %v", r.Source, err)
		}
	})
}
