package control_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"provctl/internal/control"
	"provctl/journal"
	"provctl/journal/journaltest"
	"provctl/receipt"
)

// backer is a worker with a journal.
type backer struct {
	*fake
	j *journal.Journal
}

func (b backer) Backup(ctx context.Context) (*journal.Copy, error) { return b.j.Backup(ctx) }

// serveJournal serves a journal of some megabytes, which no socket takes unread.
func serveJournal(t *testing.T) (string, *journal.Journal) {
	t.Helper()
	j := journaltest.Open(t)
	dir := filepath.Dir(j.Info().Path)
	seen := make([]journal.Sighting, 5000)
	for i := range seen {
		seen[i].Node = receipt.NodeID(fmt.Sprintf("node-%d.example.net", i))
	}
	if _, err := j.Admit(t.Context(), seen, len(seen)); err != nil {
		t.Fatal(err)
	}
	serve(t, dir, backer{&fake{}, j})
	return dir, j
}

func TestBackupTravels(t *testing.T) {
	t.Parallel()
	dir, j := serveJournal(t)
	file := filepath.Join(t.TempDir(), "backup.db")
	info, size, err := journal.Save(file, func(w io.Writer) (journal.Info, error) { return dial(t, dir).Backup(t.Context(), w) }, journal.Verify)
	if want := j.Info(); err != nil || size < 1<<20 || info.ID != want.ID || info.Seq != want.Seq || info.Epoch != want.Epoch {
		t.Errorf("%d bytes of %+v, %v; want %+v", size, info, err, want)
	}
}

// TestSlowBackup: who asks for a backup and does not read it keeps out other backups alone. When he goes, it is over.
func TestSlowBackup(t *testing.T) {
	t.Parallel()
	dir, j := serveJournal(t)
	slow, err := net.Dial("unix", control.SocketPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = slow.Close() }()
	if _, err := io.WriteString(slow, "GET /v1/backup HTTP/1.1\r\nHost: worker\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(slow, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	c := dial(t, dir)
	if _, err := c.Backup(t.Context(), io.Discard); !errors.Is(err, control.ErrOverloaded) {
		t.Errorf("a second backup meanwhile: %v, want ErrOverloaded", err)
	}
	if _, err := c.Snapshot(t.Context()); err != nil {
		t.Errorf("a snapshot meanwhile: %v", err)
	}
	if _, err := j.SetPause(t.Context(), "me", "a commit meanwhile"); err != nil {
		t.Errorf("a commit meanwhile: %v", err)
	}
	_ = slow.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		_, err := c.Backup(ctx, io.Discard)
		if err == nil {
			return
		}
		if !errors.Is(err, control.ErrOverloaded) {
			t.Fatalf("a backup afterwards: %v", err)
		}
	}
}

func TestBackupRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serve(t, dir, &fake{})
	if _, err := dial(t, dir).Backup(t.Context(), io.Discard); !errors.Is(err, control.ErrProtocol) {
		t.Errorf("a worker that makes none: %v", err)
	}
	dir, j := serveJournal(t)
	if _, err := dial(t, dir).Backup(t.Context(), noSpace{}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := dial(t, dir).Backup(t.Context(), io.Discard); !errors.Is(err, control.ErrUnavailable) && !errors.Is(err, journal.ErrClosed) {
		t.Errorf("a worker that ends: %v", err)
	}
}

type noSpace struct{}

func (noSpace) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: "backup.db", Err: syscall.ENOSPC}
}

// TestBackupCut: what is not the whole is an error, whatever the other side says.
func TestBackupCut(t *testing.T) {
	t.Parallel()
	headers := "Provctl-Journal: J\r\nProvctl-Epoch: 1\r\nProvctl-Sequence: 2\r\n"
	for what, tc := range map[string]struct {
		answer string
		want   error
	}{
		"cut":         {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n" + headers + "\r\n12345", control.ErrUnavailable},
		"no length":   {"HTTP/1.1 200 OK\r\n" + headers + "\r\n12345", control.ErrProtocol},
		"no moment":   {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12345", control.ErrProtocol},
		"no error":    {"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n{}", control.ErrProtocol},
		"other error": {"HTTP/1.1 500 No\r\nContent-Length: 31\r\n\r\n" + `{"code":"damaged","message":"x"}`[:31], control.ErrProtocol},
		"damaged":     {"HTTP/1.1 500 No\r\nContent-Length: 32\r\n\r\n" + `{"code":"damaged","message":"x"}`, receipt.ErrDamaged},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			l, err := net.Listen("unix", control.SocketPath(dir))
			if err != nil {
				t.Fatal(err)
			}
			live := `{"pid":1}`
			s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v1/live" {
					_, _ = io.WriteString(w, live)
					return
				}
				conn, b, err := http.NewResponseController(w).Hijack()
				if err != nil {
					return
				}
				_, _ = b.WriteString(tc.answer)
				_ = b.Flush()
				_ = conn.Close()
			})}
			go func() { _ = s.Serve(l) }()
			t.Cleanup(func() { _ = s.Close() })
			var got bytes.Buffer
			if _, err := dial(t, dir).Backup(t.Context(), &got); !errors.Is(err, tc.want) {
				t.Errorf("%d bytes, %v; want %v", got.Len(), err, tc.want)
			}
		})
	}
}
