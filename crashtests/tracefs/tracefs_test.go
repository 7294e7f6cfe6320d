package tracefs_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"

	"provctl/crashtests/trace"
	"provctl/crashtests/tracefs"
	"provctl/internal/localfs"
)

func show(events []trace.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%d %s %s", e.N, e.Kind, e.Path)
		if e.To != "" {
			fmt.Fprintf(&b, " > %s", e.To)
		}
		if e.Kind == trace.Write || e.Kind == trace.Truncate {
			fmt.Fprintf(&b, " at %d %q", e.Off, e.Data)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

const wanted = `1 create a
2 write a at 0 "hello"
3 write a at 4096 "world"
4 sync a
5 sync a
6 truncate a at 6 ""
7 rename a > b
8 write b at 6 "!"
9 chmod b
10 link b > c
11 mkdir sub
12 symlink sub/s > b
13 truncate b at 0 ""
14 write b at 0 "new"
15 dirsync .
16 unlink sub/s
17 rmdir sub
18 unlink c
`

func TestEveryChangeIsNumberedWithItsData(t *testing.T) {
	t.Parallel()
	m := mount(t)
	if out, err := m.run("operations"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := show(m.trace.Events()); got != wanted {
		t.Errorf("trace:\n%s\nwant:\n%s", got, wanted)
	}
	for _, e := range m.trace.Events() {
		if !e.Disk() || e.After {
			t.Errorf("event %+v", e)
		}
	}
	if b, err := os.ReadFile(filepath.Join(m.backing, "b")); err != nil || string(b) != "new" {
		t.Errorf("the mirrored file holds %q, %v", b, err)
	}
}

func TestKillBeforeAnOperationLeavesExactlyTheOnesBefore(t *testing.T) {
	t.Parallel()
	const operations = 11 // create, then five times a line and its sync
	for k := 1; ; k++ {
		m := mount(t)
		c := m.start("append")
		m.fs.KillAt(k, func() { _ = c.cmd.Process.Kill() })
		out, err := c.wait()
		if !m.trace.Hit() {
			if err != nil || k != operations+1 {
				t.Fatalf("survived at %d: %v: %s", k, err, out)
			}
			return
		}
		if st, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || st.Signal() != syscall.SIGKILL {
			t.Fatalf("killed at %d it ended with %v: %s", k, err, out)
		}
		if n := m.trace.Len(); n != k {
			t.Errorf("killed at %d, the trace goes on to %d", k, n)
		}
		want := ""
		for i := range (k - 1) / 2 {
			want += fmt.Sprintf("line %d\n", i)
		}
		b, err := os.ReadFile(filepath.Join(m.backing, "log"))
		if k == 1 && !os.IsNotExist(err) || k > 1 && string(b) != want {
			t.Errorf("killed at %d it holds %q (%v), want %q", k, b, err, want)
		}
		m.fs.Heal()
		if out, err := m.run("append"); err != nil {
			t.Errorf("after a kill at %d: %v: %s", k, err, out)
		}
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault tracefs.Fault
		says  string
		holds string
		hits  []int
	}{
		{tracefs.Fault{Match: tracefs.Of(trace.Sync), Nth: 2, Err: syscall.EIO}, "input/output error", "line 0\nline 1\n", []int{5}},
		{tracefs.Fault{Match: tracefs.Of(trace.Write), Nth: 1, Err: syscall.ENOSPC, Once: true}, "no space left", "", []int{2}},
		{tracefs.Fault{Nth: 4, Err: syscall.EIO, Once: true}, "input/output error", "line 0\n", []int{4}},
		{tracefs.Fault{Match: tracefs.Of(trace.Unlink), Nth: 1, Err: syscall.EIO}, "", "line 0\nline 1\nline 2\nline 3\nline 4\n", nil},
	} {
		m := mount(t)
		m.fs.Fail(c.fault)
		out, err := m.run("append")
		if (err != nil) != (c.says != "") || !strings.Contains(out, c.says) {
			t.Errorf("%+v: %v: %q, want %q", c.fault, err, out, c.says)
		}
		if b, err := os.ReadFile(filepath.Join(m.backing, "log")); err != nil || string(b) != c.holds {
			t.Errorf("%+v: holds %q, %v", c.fault, b, err)
		}
		if got := m.fs.Failed(); fmt.Sprint(got) != fmt.Sprint(c.hits) {
			t.Errorf("%+v: failed %v, want %v", c.fault, got, c.hits)
		}
		m.fs.Heal()
		if out, err := m.run("append"); err != nil {
			t.Errorf("%+v: healed: %v: %s", c.fault, err, out)
		}
	}
}

func TestAFaultThatLastsFailsAllThatFollow(t *testing.T) {
	t.Parallel()
	m := mount(t)
	m.fs.Fail(tracefs.Fault{Nth: 2, Err: syscall.EIO})
	for range 3 {
		if out, err := m.run("append"); err == nil {
			t.Errorf("no error: %s", out)
		}
	}
	if n := len(m.fs.Failed()); n != 3 {
		t.Errorf("%d operations failed, want 3", n)
	}
}

func TestABoltDatabaseSurvivesKillsOnIt(t *testing.T) {
	t.Parallel()
	m := mount(t)
	if out, err := m.run("bolt"); err != nil || !strings.Contains(out, "committed 19") {
		t.Fatalf("%v: %s", err, out)
	}
	total := m.trace.Len()
	if total < 60 {
		t.Errorf("20 commits made %d events only", total)
	}
	for k := 7; k < total; k += 13 {
		m := mount(t)
		c := m.start("bolt")
		m.fs.KillAt(k, func() { _ = c.cmd.Process.Kill() })
		out, _ := c.wait()
		if !m.trace.Hit() {
			t.Fatalf("event %d of %d did not come", k, total)
		}
		acknowledged := strings.Count(out, "committed")
		path := filepath.Join(m.backing, "db")
		if info, err := os.Stat(path); (err != nil || info.Size() == 0) && acknowledged == 0 {
			continue // killed before there was a database
		}
		db, err := bolt.Open(path, 0o600, nil)
		if err != nil {
			if acknowledged > 0 || k > 8 {
				t.Errorf("killed at %d: %v", k, err)
			}
			continue
		}
		keys := 0
		err = db.View(func(tx *bolt.Tx) error {
			if b := tx.Bucket([]byte("b")); b != nil {
				return b.ForEach(func(_, _ []byte) error { keys++; return nil })
			}
			return nil
		})
		if err != nil || keys < acknowledged || keys > acknowledged+1 {
			t.Errorf("killed at %d: %d keys, %d acknowledged, %v", k, keys, acknowledged, err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestLocksExcludeAndDieWithTheirProcess(t *testing.T) {
	t.Parallel()
	m := mount(t)
	first := m.start("lock")
	if line, err := first.out.ReadString('\n'); line != "held\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if out, err := m.run("lock"); err == nil || !strings.Contains(out, "temporarily unavailable") {
		t.Errorf("a second process took the lock: %q, %v", out, err)
	}
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = first.wait()
	if out, err := m.run("lock"); err != nil || out != "held\n" {
		t.Errorf("the lock outlived its process: %q, %v", out, err)
	}
}

func TestSocketsWorkUnderTheirNewName(t *testing.T) {
	t.Parallel()
	m := mount(t)
	server := m.start("socket")
	if line, err := server.out.ReadString('\n'); line != "listens\n" {
		t.Fatalf("%q, %v", line, err)
	}
	c, err := net.Dial("unix", filepath.Join(m.fs.Dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if line, err := bufio.NewReader(c).ReadString('\n'); line != "hello\n" {
		t.Errorf("%q, %v", line, err)
	}
	if out, err := server.wait(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestARemovedFileIsKnownByItsDescriptor(t *testing.T) {
	t.Parallel()
	m := mount(t)
	if out, err := m.run("removed"); err != nil || out != "true true false\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestItCountsAsLocal(t *testing.T) {
	t.Parallel()
	if err := localfs.Check(mount(t).fs.Dir); err != nil {
		t.Error(err)
	}
}

func TestUnmountLeavesNothing(t *testing.T) {
	t.Parallel()
	m := mount(t)
	busy := m.start("lock")
	if line, err := busy.out.ReadString('\n'); line != "held\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := m.fs.Unmount(); err != nil {
		t.Errorf("unmount with a file open: %v", err)
	}
	if err := m.fs.Unmount(); err != nil {
		t.Errorf("a second time: %v", err)
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(b), m.fs.Dir+" ") {
		t.Errorf("still mounted (%v)", err)
	}
	_, _ = busy.wait()
}
