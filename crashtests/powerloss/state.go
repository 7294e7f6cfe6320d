package powerloss

import (
	"fmt"
	"io/fs"
	"maps"
	"path"

	"provctl/crashtests/trace"
)

// inode is a file whatever its names are.
type inode struct {
	mode fs.FileMode
	link string
	data []byte // as of its last sync; replaced, never changed
}

// change is an operation that was not synced: on a file's content if its file is set, else on a directory's names.
type change struct {
	n    int // of its event
	file *inode
	off  int64  // of data; the new size if data is nil
	data []byte // of a write

	from, to string // names that go and come; "" is none
	entry    *inode // what comes
}

// dir is the directory whose sync makes a change of names durable.
func (c change) dir() string {
	if c.to != "" {
		return path.Dir(c.to)
	}
	return path.Dir(c.from)
}

// state follows a trace.
type state struct {
	names   map[string]*inode // as the running program sees them
	durable map[string]*inode
	pending []change // in order
}

func newState(initial Image) *state {
	s := &state{names: map[string]*inode{}}
	for name, f := range initial {
		s.names[name] = &inode{mode: f.Mode, link: f.Link, data: f.Data}
	}
	s.durable = maps.Clone(s.names)
	return s
}

// step follows one event. Events of nodes change nothing.
func (s *state) step(e trace.Event) error {
	if !e.Disk() || e.Path == "" { // a file without a name is not found again
		return nil
	}
	file := s.names[e.Path]
	switch e.Kind {
	case trace.Create, trace.Mkdir, trace.Symlink, trace.Mknod:
		if file != nil {
			return wrong(e, "the name is taken")
		}
		s.enter(change{n: e.N, to: e.Path, entry: made(e)})
		return nil
	case trace.DirSync:
		s.syncDir(e.Path)
		return nil
	}
	if file == nil {
		return wrong(e, "there is no such file")
	}
	switch e.Kind {
	case trace.Write:
		s.pending = append(s.pending, change{n: e.N, file: file, off: e.Off, data: append([]byte{}, e.Data...)})
	case trace.Truncate:
		s.pending = append(s.pending, change{n: e.N, file: file, off: e.Off})
	case trace.Sync:
		s.sync(file)
	case trace.Unlink, trace.Rmdir:
		s.enter(change{n: e.N, from: e.Path})
	case trace.Link:
		s.enter(change{n: e.N, to: e.To, entry: file})
	case trace.Rename:
		if file.mode.IsDir() || path.Dir(e.Path) != path.Dir(e.To) {
			return wrong(e, "only files are followed, and only within their directory")
		}
		s.enter(change{n: e.N, from: e.Path, to: e.To, entry: file})
	case trace.Chmod, trace.Chown: // of no account here
	default:
		return wrong(e, "an unknown kind of operation")
	}
	return nil
}

func wrong(e trace.Event, why string) error {
	return fmt.Errorf("event %d (%s %q): %s: the trace is not complete, or the image is not what it began with", e.N, e.Kind, e.Path, why)
}

func made(e trace.Event) *inode {
	switch e.Kind {
	case trace.Mkdir:
		return &inode{mode: fs.ModeDir | 0o700}
	case trace.Symlink:
		return &inode{mode: fs.ModeSymlink | 0o777, link: e.To}
	case trace.Mknod:
		return &inode{mode: fs.ModeSocket | 0o600}
	}
	return &inode{mode: 0o600}
}

func (c change) enter(names map[string]*inode) {
	if c.from != "" {
		delete(names, c.from)
	}
	if c.to != "" {
		names[c.to] = c.entry
	}
}

func (s *state) enter(c change) {
	c.enter(s.names)
	s.pending = append(s.pending, c)
}

// settle removes changes from what is pending, in order.
func (s *state) settle(is func(change) bool, apply func(change)) {
	var rest []change
	for _, c := range s.pending {
		if is(c) {
			apply(c)
		} else {
			rest = append(rest, c)
		}
	}
	s.pending = rest
}

func (s *state) sync(file *inode) {
	var mine []change
	s.settle(func(c change) bool { return c.file == file }, func(c change) { mine = append(mine, c) })
	file.data = content(file.data, mine)
}

func (s *state) syncDir(dir string) {
	s.settle(func(c change) bool { return c.file == nil && c.dir() == dir }, func(c change) { c.enter(s.durable) })
	s.forget()
}

// forget drops what is pending for files that no image can show any more.
func (s *state) forget() {
	seen := map[*inode]bool{}
	for _, names := range []map[string]*inode{s.names, s.durable} {
		for _, file := range names {
			seen[file] = true
		}
	}
	for _, c := range s.pending {
		if c.file == nil && c.to != "" {
			seen[c.entry] = true
		}
	}
	s.settle(func(c change) bool { return c.file != nil && !seen[c.file] }, func(change) {})
}

// content is a file's content after changes of it; the former is left as it is.
func content(data []byte, changes []change) []byte {
	if len(changes) == 0 {
		return data
	}
	size, most := int64(len(data)), int64(len(data))
	for _, c := range changes {
		size = c.after(size)
		most = max(most, size)
	}
	out := append(make([]byte, 0, most), data...)
	for _, c := range changes {
		before := int64(len(out))
		out = out[:c.after(before)]
		if now := int64(len(out)); now > before {
			clear(out[before:])
		}
		copy(out[min(c.off, int64(len(out))):], c.data)
	}
	return out
}

// after is a file's size after a change of its content.
func (c change) after(size int64) int64 {
	if c.data == nil {
		return c.off
	}
	return max(size, c.off+int64(len(c.data)))
}

// image is what is found if, of what is pending, only these changes reached the disk.
func (s *state) image(changes []change) Image {
	names := s.durable
	data := map[*inode][]change{}
	cloned := false
	for _, c := range changes {
		if c.file != nil {
			data[c.file] = append(data[c.file], c)
			continue
		}
		if !cloned {
			names, cloned = maps.Clone(names), true
		}
		c.enter(names)
	}
	m := Image{}
	for name, file := range names {
		if file.mode&fs.ModeType&^kept == 0 && rooted(names, name) {
			m[name] = File{Mode: file.mode, Link: file.link, Data: content(file.data, data[file])}
		}
	}
	return m
}

// rooted tells whether all directories above a name are there: without them it cannot be reached.
func rooted(names map[string]*inode, name string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if names[dir] == nil {
			return false
		}
	}
	return true
}
