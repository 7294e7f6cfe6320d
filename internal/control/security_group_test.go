package control_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"provctl/internal/control"
)

// Ids that no account has: what counts is what the kernel says.
const (
	operators = 54321 // the control group
	member    = 54322
	stranger  = 54323
)

// as runs do on a thread of its own with somebody else's credentials, which the kernel looks at when that thread connects or listens.
func as(t *testing.T, uid, gid int, groups []uint32, do func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test takes on other users' ids: run it as root")
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, which has lost its privileges, ends with this goroutine

		if err := threadIs(uid, gid, groups); err != nil {
			done <- err
			return
		}
		do()
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// openDir is a directory of ours that other users can enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// dialAs connects as somebody.
func dialAs(t *testing.T, path string, uid, gid int, groups ...uint32) (conn net.Conn, err error) {
	t.Helper()
	as(t, uid, gid, groups, func() { conn, err = net.Dial("unix", path) })
	if err == nil {
		t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

// over sends a request over a connection that stands already.
func over(t *testing.T, conn net.Conn, method, path, body string) (int, string) {
	t.Helper()
	return asked(t, method, "/v1/"+path, strings.NewReader(body), func(context.Context) (net.Conn, error) { return conn, nil })
}

func group(socket string) control.Group {
	return control.Group{Socket: socket, Name: "operators", ID: operators}
}

func serveGroup(t *testing.T, w control.Worker) (path string) {
	t.Helper()
	path = filepath.Join(openDir(t), "control.sock")
	stop, err := control.ServeGroup(t.Context(), group(path), w, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return path
}

func TestSecurityMembersOfTheGroupMayCommand(t *testing.T) {
	w := &fake{}
	path := serveGroup(t, w)
	for name, gids := range map[string][]uint32{"supplementary": {7, operators, 9}, "primary": {operators}} {
		conn, err := dialAs(t, path, member, int(gids[0]), gids...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if status, body := over(t, conn, "POST", "release", `{"node":"n1","reason":"repaired","operator":"root"}`); status != http.StatusOK {
			t.Errorf("%s: a member is answered %d %s", name, status, body)
		}
	}
	if len(w.by) != 2 || w.by[0] != "uid 54322 (as root)" {
		t.Errorf("recorded as %q: who asks is for the kernel to say", w.by)
	}
	c := dial(t, control.SocketPlace(path))
	if live, err := c.Live(t.Context()); err != nil || live.Epoch != 7 {
		t.Errorf("root is answered %+v, %v", live, err)
	}
}

func TestSecurityOthersMayNotCommandThroughTheGroup(t *testing.T) {
	w := &fake{}
	path := serveGroup(t, w)
	if _, err := dialAs(t, path, stranger, stranger, 7); !errors.Is(err, os.ErrPermission) {
		t.Errorf("a stranger's connection gives %v, want no permission", err)
	}
	if err := os.Chmod(path, 0o666); err != nil { // what a careless hand may do: the worker looks for itself
		t.Fatal(err)
	}
	for name, who := range map[string]struct {
		uid  int
		says string
	}{"a stranger": {stranger, "no member"}, "somebody without a name": {65534, "cannot tell who you are"}} {
		groups := []uint32{7}
		if who.uid == 65534 {
			groups = append(groups, operators)
		}
		conn, err := dialAs(t, path, who.uid, 7, groups...)
		if err != nil {
			t.Fatal(err)
		}
		if status, body := over(t, conn, "POST", "release", `{"node":"n1","reason":"x"}`); status != http.StatusForbidden || !strings.Contains(body, who.says) {
			t.Errorf("%s is answered %d %s", name, status, body)
		}
	}
	if len(w.by) != 0 {
		t.Errorf("it was done for %q", w.by)
	}
}

// The socket in the state directory stays for the worker's user and root, whatever its mode becomes.
func TestSecurityStateDirectorySocketRefusesOtherUsers(t *testing.T) {
	dir, w := openDir(t), &fake{}
	serve(t, dir, w)
	path := control.SocketPath(dir)
	if _, err := dialAs(t, path, stranger, operators); !errors.Is(err, os.ErrPermission) {
		t.Errorf("a stranger's connection gives %v, want no permission", err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	conn, err := dialAs(t, path, stranger, operators)
	if err != nil {
		t.Fatal(err)
	}
	if status, body := over(t, conn, "GET", "snapshot", ""); status != http.StatusForbidden {
		t.Errorf("a stranger is answered %d %s", status, body)
	}
}

func TestSecurityGroupSocketAppearsWithItsMode(t *testing.T) {
	path := serveGroup(t, &fake{})
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode&0o7777 != 0o660 || st.Gid != operators {
		t.Errorf("mode %o, group %d, %v: want 660 and %d", st.Mode&0o7777, st.Gid, err, operators)
	}
}

// Somebody else's process that has the socket's place is told nothing.
func TestSecurityClientTellsAnImpostorNothing(t *testing.T) {
	for name, place := range map[string]func(dir string) string{
		"state directory": func(dir string) string { return dir },
		"socket":          func(dir string) string { return control.SocketPlace(control.SocketPath(dir)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := openDir(t)
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			var l net.Listener
			var err error
			as(t, stranger, stranger, nil, func() { l, err = net.Listen("unix", control.SocketPath(dir)) })
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if _, err := control.Dial(place(dir)); !errors.Is(err, control.ErrDenied) || !strings.Contains(err.Error(), "it is not the worker") {
				t.Errorf("dialling an impostor gives %v", err)
			}
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
			if told, err := io.ReadAll(conn); err != nil || len(told) != 0 {
				t.Errorf("the impostor was told %q, %v", told, err)
			}
		})
	}
}

func TestSecurityWithoutAWorkerTheSocketIsAllThereIs(t *testing.T) {
	_, err := control.Dial(control.SocketPlace(filepath.Join(openDir(t), "control.sock")))
	if !errors.Is(err, control.ErrUnserved) || !errors.Is(err, control.ErrUnavailable) || errors.Is(err, control.ErrNoWorker) || !strings.Contains(err.Error(), "start the worker") {
		t.Errorf("without a worker dialling gives %v", err)
	}
	path := serveGroup(t, &fake{})
	as(t, stranger, stranger, nil, func() { _, err = control.Dial(control.SocketPlace(path)) })
	if !errors.Is(err, control.ErrDenied) || !strings.Contains(err.Error(), "control_group") {
		t.Errorf("a stranger is told %v", err)
	}
}

func TestSecurityGroupSocketRefusesHostilePlaces(t *testing.T) {
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, says, setting string
		make                func(t *testing.T, dir string) (socket string)
	}{
		{"missing", "does not exist", "control_socket", func(_ *testing.T, dir string) string { return filepath.Join(dir, "none", "s.sock") }},
		{"open to all", "others may write", "control_socket", func(t *testing.T, dir string) string {
			must(t, os.Chmod(dir, 0o777))
			return filepath.Join(dir, "s.sock")
		}},
		{"like /tmp", "others may write", "control_socket", func(t *testing.T, dir string) string {
			must(t, os.Chmod(dir, 0o777|os.ModeSticky))
			return filepath.Join(dir, "s.sock")
		}},
		{"open to a group", "others may write", "control_socket", func(t *testing.T, dir string) string {
			must(t, os.Chmod(dir, 0o770))
			return filepath.Join(dir, "s.sock")
		}},
		{"somebody else's", "belongs to user id 54323", "control_socket", func(t *testing.T, dir string) string {
			must(t, os.Chown(dir, stranger, 0))
			return filepath.Join(dir, "s.sock")
		}},
		{"below somebody else's", "belongs to user id 54323", "control_socket", func(t *testing.T, dir string) string {
			must(t, os.Mkdir(filepath.Join(dir, "run"), 0o755))
			must(t, os.Chown(dir, stranger, 0))
			return filepath.Join(dir, "run", "s.sock")
		}},
		{"through a link", "symbolic link", "control_socket", func(t *testing.T, dir string) string {
			must(t, os.Mkdir(filepath.Join(dir, "run"), 0o755))
			must(t, os.Symlink("run", filepath.Join(dir, "link")))
			return filepath.Join(dir, "link", "s.sock")
		}},
		{"a link in its place", "move it away", "control_socket", func(t *testing.T, dir string) string {
			must(t, os.WriteFile(filepath.Join(dir, "precious"), []byte("precious"), 0o600))
			must(t, os.Symlink("precious", filepath.Join(dir, "s.sock")))
			return filepath.Join(dir, "s.sock")
		}},
		{"a file in its place", "move it away", "control_socket", func(t *testing.T, dir string) string {
			must(t, os.WriteFile(filepath.Join(dir, "s.sock"), []byte("precious"), 0o600))
			return filepath.Join(dir, "s.sock")
		}},
		{"another worker's", "serves it already", "control_socket", func(t *testing.T, dir string) string {
			l, err := net.Listen("unix", filepath.Join(dir, "s.sock"))
			must(t, err)
			t.Cleanup(func() { _ = l.Close() })
			return filepath.Join(dir, "s.sock")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := openDir(t)
			socket := c.make(t, dir)
			stop, err := control.ServeGroup(t.Context(), group(socket), &fake{}, nil)
			if err == nil {
				stop()
			}
			var refused *control.GroupError
			if !errors.As(err, &refused) || refused.Setting != c.setting || !strings.Contains(err.Error(), c.says) {
				t.Errorf("serving there gives %v, want %s to be refused with %q", err, c.setting, c.says)
			}
			if b, err := os.ReadFile(filepath.Join(dir, "precious")); err == nil && string(b) != "precious" {
				t.Errorf("what the link leads to was written: %q", b)
			}
		})
	}
}

func TestSecurityWorkerMustBeOfTheGroup(t *testing.T) {
	dir := openDir(t)
	if err := os.Chown(dir, member, member); err != nil {
		t.Fatal(err)
	}
	var err error
	as(t, member, member, []uint32{7}, func() { _, err = control.ServeGroup(t.Context(), group(filepath.Join(dir, "s.sock")), &fake{}, nil) })
	var refused *control.GroupError
	if !errors.As(err, &refused) || refused.Setting != "control_group" || !strings.Contains(err.Error(), "SupplementaryGroups=operators") {
		t.Errorf("a worker that is no member: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("after the refusal %v is left, %v", left, err)
	}
}

func TestSecurityDeadWorkersGroupSocketIsReplaced(t *testing.T) {
	path := filepath.Join(openDir(t), "s.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close() // as a killed worker leaves it
	stop, err := control.ServeGroup(t.Context(), group(path), &fake{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dial(t, control.SocketPlace(path)).Live(t.Context()); err != nil {
		t.Error(err)
	}
	stop()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after stop the socket is still there: %v", err)
	}
}
