package tracefs_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"provctl/crashtests/trace"
	"provctl/crashtests/tracefs"
)

// childEnv makes the test binary the process that uses the file system: "script directory".
const childEnv = "PROVCTL_TEST_TRACEFS"

var scripts = map[string]func(dir string) error{
	"operations": operations, "bolt": bolts, "lock": lock, "socket": socket, "removed": removed, "append": appends,
}

func TestMain(m *testing.M) {
	name, dir, ok := strings.Cut(os.Getenv(childEnv), " ")
	if !ok {
		if err := tracefs.Available(); err != nil && os.Getenv("CI") != "true" {
			fmt.Println("NOT RUN:", err)
			return
		}
		os.Exit(m.Run())
	}
	if err := scripts[name](dir); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

// mounted is a mirror for one test.
type mounted struct {
	t       *testing.T
	fs      *tracefs.FS
	trace   *trace.Trace
	backing string
}

func mount(t *testing.T) *mounted {
	t.Helper()
	m := &mounted{t: t, trace: trace.New(), backing: t.TempDir()}
	var err error
	if m.fs, err = tracefs.Mount(m.backing, t.TempDir(), m.trace); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.fs.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// child is a process that uses the mirror.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (m *mounted) start(script string) *child {
	m.t.Helper()
	c := &child{cmd: exec.CommandContext(m.t.Context(), os.Args[0])}
	c.cmd.Env = append(os.Environ(), childEnv+"="+script+" "+m.fs.Dir)
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		c.in, err = c.cmd.StdinPipe()
	}
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		m.t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	return c
}

// wait returns all that the child still says, and its error.
func (c *child) wait() (string, error) {
	_ = c.in.Close()
	said, _ := io.ReadAll(c.out)
	return string(said), c.cmd.Wait()
}

func (m *mounted) run(script string) (string, error) {
	m.t.Helper()
	return m.start(script).wait()
}

func operations(dir string) error {
	at := func(name string) string { return filepath.Join(dir, name) }
	f, err := os.OpenFile(at("a"), os.O_CREATE|os.O_RDWR|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, e1 := f.WriteAt([]byte("hello"), 0)
	_, e2 := f.WriteAt([]byte("world"), 4096)
	e3, e4, e5 := f.Sync(), unix.Fdatasync(int(f.Fd())), f.Truncate(6)
	e6 := os.Rename(at("a"), at("b"))
	_, e7 := f.WriteAt([]byte("!"), 6) // through the old descriptor, to the new name
	err = errors.Join(e1, e2, e3, e4, e5, e6, e7, f.Close(),
		os.Chmod(at("b"), 0o640), os.Link(at("b"), at("c")), os.Mkdir(at("sub"), 0o700), os.Symlink("b", at("sub/s")),
		os.WriteFile(at("b"), []byte("new"), 0o600))
	d, e8 := os.Open(dir)
	if e8 != nil {
		return errors.Join(err, e8)
	}
	err = errors.Join(err, d.Sync(), d.Close(), os.Remove(at("sub/s")), os.Remove(at("sub")), os.Remove(at("c")))
	if e := unix.Renameat2(unix.AT_FDCWD, at("b"), unix.AT_FDCWD, at("b"), unix.RENAME_NOREPLACE); !errors.Is(e, unix.EEXIST) {
		err = errors.Join(err, fmt.Errorf("rename over an existing name: %w", e))
	}
	return err
}

func bolts(dir string) error {
	db, err := bolt.Open(filepath.Join(dir, "db"), 0o600, nil)
	if err != nil {
		return err
	}
	for i := range 20 {
		err := db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			if err != nil {
				return err
			}
			return b.Put(fmt.Appendf(nil, "key %d", i), make([]byte, 3000))
		})
		if err != nil {
			return err
		}
		fmt.Println("committed", i)
	}
	return db.Close()
}

func lock(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	fmt.Println("held")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func socket(dir string) error {
	temp, path := filepath.Join(dir, ".socket"), filepath.Join(dir, "socket")
	l, err := net.Listen("unix", temp)
	if err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(temp, 0o600), os.Rename(temp, path)); err != nil {
		return err
	}
	fmt.Println("listens")
	c, err := l.Accept()
	if err != nil {
		return err
	}
	_, err = c.Write([]byte("hello\n"))
	return errors.Join(err, c.Close())
}

// removed looks at a file that lost its name while open, as a fence does.
func removed(dir string) error {
	path := filepath.Join(dir, "x")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	before, e1 := f.Stat()
	e2 := os.Remove(path)
	after, e3 := f.Stat()
	if err := errors.Join(e1, e2, e3); err != nil {
		return err
	}
	other, e4 := os.Create(path)
	now, e5 := os.Lstat(path)
	if err := errors.Join(e4, e5); err != nil {
		return err
	}
	st, ok := after.Sys().(*syscall.Stat_t)
	fmt.Println(ok && st.Nlink == 0, os.SameFile(before, after), os.SameFile(after, now))
	return errors.Join(f.Close(), other.Close())
}

func appends(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for i := range 5 {
		if _, err := fmt.Fprintf(f, "line %d\n", i); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return f.Close()
}
