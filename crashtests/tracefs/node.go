package tracefs

import (
	"bytes"
	"context"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"provctl/crashtests/trace"
)

// node mirrors a file or directory. What it does not override is go-fuse's mirror; every method that changes something is
// overridden here.
type node struct {
	*fs.LoopbackNode
	fs *FS
}

var (
	_ fs.NodeWrapChilder    = (*node)(nil)
	_ fs.NodeOpener         = (*node)(nil)
	_ fs.NodeOpendirHandler = (*node)(nil)
	_ fs.NodeWriter         = (*node)(nil)
	_ fs.NodeFsyncer        = (*node)(nil)
	_ fs.NodeSetattrer      = (*node)(nil)
	_ fs.NodeAllocater      = (*node)(nil)
	_ fs.NodeCopyFileRanger = (*node)(nil)
	_ fs.NodeCreater        = (*node)(nil)
	_ fs.NodeMknoder        = (*node)(nil)
	_ fs.NodeMkdirer        = (*node)(nil)
	_ fs.NodeSymlinker      = (*node)(nil)
	_ fs.NodeLinker         = (*node)(nil)
	_ fs.NodeRenamer        = (*node)(nil)
	_ fs.NodeUnlinker       = (*node)(nil)
	_ fs.NodeRmdirer        = (*node)(nil)
	_ fs.NodeSetxattrer     = (*node)(nil)
	_ fs.NodeRemovexattrer  = (*node)(nil)
)

// WrapChild makes every node below one of ours.
func (n *node) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	loop, ok := ops.(*fs.LoopbackNode)
	if !ok {
		return ops
	}
	return &node{LoopbackNode: loop, fs: n.fs}
}

// at is the path below the mount; "" of a file that has no name any more.
func (n *node) at(name string) string {
	if _, parent := n.Parent(); parent == nil && !n.IsRoot() {
		return ""
	}
	return path.Join(n.Path(n.Root()), name)
}

func (n *node) self() string {
	if n.IsRoot() {
		return "."
	}
	return n.at("")
}

// entry performs an operation that makes a name.
func (n *node) entry(e trace.Event, perform func() (*fs.Inode, syscall.Errno)) (child *fs.Inode, errno syscall.Errno) {
	errno = n.fs.do(e, func() syscall.Errno {
		var errno syscall.Errno
		child, errno = perform()
		return errno
	})
	return child, errno
}

// Open truncates as an operation of its own.
func (n *node) Open(ctx context.Context, flags uint32) (h fs.FileHandle, how uint32, errno syscall.Errno) {
	if flags&syscall.O_TRUNC == 0 {
		return n.LoopbackNode.Open(ctx, flags)
	}
	errno = n.fs.do(trace.Event{Kind: trace.Truncate, Path: n.self()}, func() (errno syscall.Errno) {
		h, how, errno = n.LoopbackNode.Open(ctx, flags)
		return errno
	})
	return h, how, errno
}

// handle is what a directory is read with.
type handle interface {
	fs.FileReaddirenter
	fs.FileSeekdirer
	fs.FileReleasedirer
}

// dirHandle hides the mirror's own sync of a directory, so that it comes to the node.
type dirHandle struct{ handle }

// OpendirHandle opens the directory for reading.
func (n *node) OpendirHandle(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	h, how, errno := n.LoopbackNode.OpendirHandle(ctx, flags)
	if errno != 0 {
		return nil, 0, errno
	}
	plain, ok := h.(handle)
	if !ok {
		return nil, 0, syscall.ENOTSUP
	}
	return dirHandle{plain}, how, 0
}

// Write records the bytes and writes them.
func (n *node) Write(ctx context.Context, h fs.FileHandle, data []byte, off int64) (written uint32, errno syscall.Errno) {
	w, ok := h.(fs.FileWriter)
	if !ok {
		return 0, syscall.EBADF
	}
	e := trace.Event{Kind: trace.Write, Path: n.self(), Off: off, Data: bytes.Clone(data)}
	errno = n.fs.do(e, func() (errno syscall.Errno) {
		written, errno = w.Write(ctx, data, off)
		return errno
	})
	return written, errno
}

// Fsync is an event alone, unless SyncThrough was asked for: what is lost is decided from the trace.
func (n *node) Fsync(ctx context.Context, h fs.FileHandle, flags uint32) syscall.Errno {
	kind := trace.Sync
	if n.IsDir() {
		kind = trace.DirSync
	}
	return n.fs.do(trace.Event{Kind: kind, Path: n.self()}, func() syscall.Errno {
		if !n.fs.deep.Load() {
			return 0
		}
		if f, ok := h.(fs.FileFsyncer); ok {
			return f.Fsync(ctx, flags)
		}
		return n.syncDir()
	})
}

func (n *node) syncDir() syscall.Errno {
	d, err := os.Open(filepath.Join(n.RootData.Path, n.self()))
	if err != nil {
		return fs.ToErrno(err)
	}
	defer d.Close()
	return fs.ToErrno(d.Sync())
}

// Setattr records changes of size, mode and owner; those of times alone are not traced.
func (n *node) Setattr(ctx context.Context, h fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	e := trace.Event{Path: n.self()}
	size, sized := in.GetSize()
	mode, moded := in.GetMode()
	_, user := in.GetUID()
	_, group := in.GetGID()
	switch {
	case sized:
		e.Kind, e.Off = trace.Truncate, int64(size) //nolint:gosec // a file's size
	case moded:
		e.Kind, e.Off = trace.Chmod, int64(mode)
	case user || group:
		e.Kind = trace.Chown
	default:
		return n.LoopbackNode.Setattr(ctx, h, in, out)
	}
	return n.fs.do(e, func() syscall.Errno { return n.LoopbackNode.Setattr(ctx, h, in, out) })
}

// Allocate is refused: a caller that wants space in advance truncates or writes instead.
func (n *node) Allocate(context.Context, fs.FileHandle, uint64, uint64, uint32) syscall.Errno {
	return syscall.ENOTSUP
}

// CopyFileRange is refused: the kernel then reads and writes.
func (n *node) CopyFileRange(context.Context, fs.FileHandle, uint64, *fs.Inode, fs.FileHandle, uint64, uint64, uint64) (uint32, syscall.Errno) {
	return 0, syscall.ENOTSUP
}

// Setxattr is refused: extended attributes are not traced.
func (n *node) Setxattr(context.Context, string, []byte, uint32) syscall.Errno {
	return syscall.ENOTSUP
}

// Removexattr is refused: extended attributes are not traced.
func (n *node) Removexattr(context.Context, string) syscall.Errno { return syscall.ENOTSUP }

// Create makes and opens a file.
func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (child *fs.Inode, h fs.FileHandle, how uint32, errno syscall.Errno) {
	child, errno = n.entry(trace.Event{Kind: trace.Create, Path: n.at(name), Off: int64(mode)}, func() (child *fs.Inode, errno syscall.Errno) {
		child, h, how, errno = n.LoopbackNode.Create(ctx, name, flags, mode, out)
		return child, errno
	})
	return child, h, how, errno
}

// Mknod makes a socket, a pipe or, asked so, a regular file.
func (n *node) Mknod(ctx context.Context, name string, mode, rdev uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	kind := trace.Mknod
	if mode&syscall.S_IFMT == syscall.S_IFREG {
		kind = trace.Create
	}
	return n.entry(trace.Event{Kind: kind, Path: n.at(name), Off: int64(mode)}, func() (*fs.Inode, syscall.Errno) {
		return n.LoopbackNode.Mknod(ctx, name, mode, rdev, out)
	})
}

// Mkdir makes a directory.
func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.entry(trace.Event{Kind: trace.Mkdir, Path: n.at(name), Off: int64(mode)}, func() (*fs.Inode, syscall.Errno) {
		return n.LoopbackNode.Mkdir(ctx, name, mode, out)
	})
}

// Symlink makes a symbolic link; To is what it says.
func (n *node) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.entry(trace.Event{Kind: trace.Symlink, Path: n.at(name), To: target}, func() (*fs.Inode, syscall.Errno) {
		return n.LoopbackNode.Symlink(ctx, target, name, out)
	})
}

// Link gives a file another name.
func (n *node) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	t, ok := target.(*node)
	if !ok {
		return nil, syscall.EXDEV
	}
	return n.entry(trace.Event{Kind: trace.Link, Path: t.self(), To: n.at(name)}, func() (*fs.Inode, syscall.Errno) {
		return n.LoopbackNode.Link(ctx, target, name, out)
	})
}

// Rename moves a name. Exchanging two is refused.
func (n *node) Rename(ctx context.Context, name string, parent fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	const exchange = 2
	to, ok := parent.(*node)
	if !ok || flags&exchange != 0 {
		return syscall.EINVAL
	}
	return n.fs.do(trace.Event{Kind: trace.Rename, Path: n.at(name), To: to.at(newName)}, func() syscall.Errno {
		return n.LoopbackNode.Rename(ctx, name, parent, newName, flags)
	})
}

// Unlink removes a name.
func (n *node) Unlink(ctx context.Context, name string) syscall.Errno {
	return n.fs.do(trace.Event{Kind: trace.Unlink, Path: n.at(name)}, func() syscall.Errno { return n.LoopbackNode.Unlink(ctx, name) })
}

// Rmdir removes a directory.
func (n *node) Rmdir(ctx context.Context, name string) syscall.Errno {
	return n.fs.do(trace.Event{Kind: trace.Rmdir, Path: n.at(name)}, func() syscall.Errno { return n.LoopbackNode.Rmdir(ctx, name) })
}
