package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	osuser "os/user"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"provctl/internal/config"
)

// user is who a worker runs as.
type user struct{ uid, gid int }

// expected is the user that a worker of this configuration runs as: root looks on behalf of the state directory's owner, whoever else for
// himself.
func expected(cfg *config.Config) user {
	me := user{os.Geteuid(), os.Getegid()}
	if me.uid != 0 || cfg == nil || cfg.StateDir == "" {
		return me
	}
	info, err := os.Stat(cfg.StateDir)
	if err != nil || !info.IsDir() {
		return me
	}
	return ownerOf(info)
}

func ownerOf(info fs.FileInfo) user {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return user{-1, -1}
	}
	return user{int(st.Uid), int(st.Gid)}
}

func (u user) mine() bool { return u.uid == os.Geteuid() }

// String names the user with the number.
func (u user) String() string {
	if known, err := osuser.LookupId(strconv.Itoa(u.uid)); err == nil {
		return fmt.Sprintf("user %s (%d)", known.Username, u.uid)
	}
	return fmt.Sprintf("user id %d", u.uid)
}

// owner is the user as chown takes it.
func (u user) owner() string {
	if known, err := osuser.LookupId(strconv.Itoa(u.uid)); err == nil {
		return known.Username
	}
	return strconv.Itoa(u.uid)
}

// groups are all that the user is in.
func (u user) groups() []uint32 {
	all := []uint32{uint32(u.gid)}
	known, err := osuser.LookupId(strconv.Itoa(u.uid))
	if err != nil {
		return all
	}
	more, err := known.GroupIds()
	if err != nil {
		return all
	}
	for _, g := range append(more, known.Gid) {
		if n, err := strconv.ParseUint(g, 10, 32); err == nil && !slices.Contains(all, uint32(n)) {
			all = append(all, uint32(n))
		}
	}
	return all
}

// access asks the kernel whether the user may do that to a path, as access(2) does for this process. For another user, whom only root looks
// for, a thread of its own takes his place: nothing else knows of access lists, mounts and directories on the way.
func (u user) access(path string, mode uint32) error {
	if u.mine() {
		return unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS)
	}
	groups, answer := u.groups(), make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		answer <- u.become(groups, path, mode)
	}()
	return <-answer
}

func (u user) become(groups []uint32, path string, mode uint32) error {
	// The raw calls concern this thread alone; those of package syscall would change the process.
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0); e != 0 {
		return fmt.Errorf("cannot look as %s: %w", u, e)
	}
	_, _ = unix.SetfsgidRetGid(u.gid)
	_, _ = unix.SetfsuidRetUid(u.uid)
	if now, _ := unix.SetfsuidRetUid(-1); now != u.uid { // it tells of no error
		return fmt.Errorf("cannot look as %s: this process may not change its user", u)
	}
	err := unix.Faccessat2(unix.AT_FDCWD, path, mode, unix.AT_EACCESS)
	if !errors.Is(err, unix.ENOSYS) {
		return err
	}
	// Kernels before 5.8 judge by the real ids alone. They are this thread's, which ends.
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(u.gid), uintptr(u.gid), uintptr(u.gid)); e != 0 {
		return fmt.Errorf("cannot look as %s: %w", u, e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(u.uid), uintptr(u.uid), uintptr(u.uid)); e != 0 {
		return fmt.Errorf("cannot look as %s: %w", u, e)
	}
	return unix.Faccessat(unix.AT_FDCWD, path, mode, 0)
}
