// Package tracefs is a FUSE file system that mirrors a directory, numbers each operation that changes the disk in a trace
// before it is performed, can fail it, and can end its caller just before it.
//
// The process that mounts it serves it, so that process must not map its files into memory, change into it, or start programs
// from it: a page fault would wait for the process itself. What runs on it is a child.
package tracefs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"provctl/crashtests/trace"
)

// ErrUnavailable is returned when this machine or user cannot mount FUSE file systems.
var ErrUnavailable = errors.New("FUSE cannot be mounted here: it needs root and /dev/fuse")

// Available tells whether Mount can work: nil or ErrUnavailable.
func Available() error {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err := f.Close(); err != nil || os.Geteuid() != 0 {
		return ErrUnavailable
	}
	return nil
}

// FS is a mounted mirror. Operations that change something are performed one by one, in the order of their numbers. Unless
// SyncThrough is asked for, none is synced to the real disk: only a simulated power fails.
type FS struct {
	Dir string // where it is mounted

	trace  *trace.Trace
	server *fuse.Server
	guard  *Guard
	once   sync.Once
	deep   atomic.Bool // syncs reach the mirrored directory

	mu    sync.Mutex // held from an operation's number to its end
	fault *Fault
	seen  int // operations that the fault's Match took
	hits  []int

	cutAt atomic.Int64 // operations with this number and later ones are refused
}

// SyncThrough has syncs from now on reach the mirrored directory's own disk.
func (f *FS) SyncThrough() { f.deep.Store(true) }

// never is the cut of a file system that refuses nothing.
const never = math.MaxInt64

// Fault makes operations fail without being performed. They are in the trace all the same.
type Fault struct {
	Match func(trace.Event) bool // nil: every operation
	Nth   int                    // the first one that fails, from 1
	Err   syscall.Errno
	Once  bool // only this one fails; else it and all that follow
}

// Of matches kinds of operations.
func Of(kinds ...trace.Kind) func(trace.Event) bool {
	return func(e trace.Event) bool {
		for _, k := range kinds {
			if e.Kind == k {
				return true
			}
		}
		return false
	}
}

// Mount mirrors the directory backing at dir; both must exist. Unmount must follow; if this process ends without it, a child
// unmounts in its stead.
func Mount(backing, dir string, t *trace.Trace) (*FS, error) {
	if err := Available(); err != nil {
		return nil, err
	}
	var st syscall.Stat_t
	if err := syscall.Stat(backing, &st); err != nil {
		return nil, fmt.Errorf("mirror %s: %w", backing, err)
	}
	f := &FS{Dir: dir, trace: t}
	f.cutAt.Store(never)
	data := &fs.LoopbackRoot{Path: backing, Dev: uint64(st.Dev)} //nolint:unconvert // its type differs between platforms
	root := &node{LoopbackNode: &fs.LoopbackNode{RootData: data}, fs: f}
	data.RootNode = root
	var err error
	if f.guard, err = NewGuard(dir); err != nil {
		return nil, err
	}
	var none time.Duration
	err = privately(func() (err error) {
		f.server, err = fs.Mount(dir, root, &fs.Options{
			EntryTimeout: &none, AttrTimeout: &none, NegativeTimeout: &none, NullPermissions: true,
			MountOptions: fuse.MountOptions{
				FsName: "provctl", Name: "provctltrace", DirectMountStrict: true, MaxWrite: 1 << 20,
				DisabledCapabilities: fuse.CAP_PASSTHROUGH, AllowOther: true,
			},
		})
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mount %s: %w", dir, err), f.guard.End())
	}
	return f, nil
}

// privately mounts so that no child inherits the connection to the kernel: go-fuse opens it without O_CLOEXEC
// (v2.12.1 fuse/mount_linux.go:49). A child that had it would keep the kernel waiting for the answers of a process that is gone, and
// with it whoever uses the mount, itself included.
func privately(mount func() error) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := mount(); err != nil {
		return err
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("find the connection of the mount: %w", err)
	}
	for _, e := range open {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to == "/dev/fuse" {
			fd, err := strconv.Atoi(e.Name())
			if err != nil {
				return fmt.Errorf("find the connection of the mount: %w", err)
			}
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}

// Unmount ends the mirror, however busy it is. A second call does nothing.
func (f *FS) Unmount() (err error) {
	f.once.Do(func() {
		if err = f.server.Unmount(); err != nil {
			err = syscall.Unmount(f.Dir, syscall.MNT_DETACH)
		}
		err = errors.Join(err, f.guard.End())
	})
	if err != nil {
		return fmt.Errorf("unmount %s: %w", f.Dir, err)
	}
	return nil
}

// KillAt has kill run when event n is added, and refuses it and all operations after it until Heal. kill must end the process
// that uses the file system with SIGKILL, and must not wait for it. The trace says with Hit whether it came to that.
func (f *FS) KillAt(n int, kill func()) {
	f.trace.At(n, func() {
		kill()
		f.cutAt.Store(int64(n))
	})
}

// Fail arms a fault in place of the former one.
func (f *FS) Fail(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault, f.seen, f.hits = &fault, 0, nil
}

// Heal ends faults and refusals.
func (f *FS) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = nil
	f.cutAt.Store(never)
}

// Failed lists the numbers of the operations that the last armed fault befell.
func (f *FS) Failed() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]int(nil), f.hits...)
}

// do numbers an operation and performs it, unless it is to fail.
func (f *FS) do(e trace.Event, perform func() syscall.Errno) syscall.Errno {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cutAt.Load() != never {
		return syscall.EIO
	}
	e.Source = trace.DiskSource
	n := f.trace.Add(e)
	if int64(n) >= f.cutAt.Load() {
		return syscall.EIO
	}
	if f.fault != nil && (f.fault.Match == nil || f.fault.Match(e)) {
		f.seen++
		if f.seen == f.fault.Nth || f.seen > f.fault.Nth && !f.fault.Once {
			f.hits = append(f.hits, n)
			return f.fault.Err
		}
	}
	return perform()
}

// Guard is a child that unmounts a directory when this process ends, however it ends: a mount that is left keeps its directory
// from being removed, and one whose server is gone answers nobody.
type Guard struct {
	cmd *exec.Cmd
	in  interface{ Close() error }
}

// NewGuard starts a guard of whatever will be mounted there.
func NewGuard(dir string) (*Guard, error) {
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", `read -r _; umount -l "$1" 2>/dev/null; exit 0`, "sh", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("guard of the mount: %w", err)
	}
	return &Guard{cmd: cmd, in: in}, nil
}

// End unmounts what is still mounted, and ends the guard.
func (g *Guard) End() error { return errors.Join(g.in.Close(), g.cmd.Wait()) }
