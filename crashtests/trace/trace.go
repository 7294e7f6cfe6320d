// Package trace is one numbered record of what a run did: operations on the disk and effects on the nodes, in the order in which
// they were about to happen. Its numbers are the places at which a test kills, fails or images the run.
package trace

import (
	"slices"
	"sync"
)

// Kind says what an event is.
type Kind string

// The kinds that sources of this tree add; a source may add others.
const (
	Create   Kind = "create"
	Write    Kind = "write"
	Truncate Kind = "truncate" // Off is the new size
	Sync     Kind = "sync"     // of a file's content and size
	DirSync  Kind = "dirsync"  // of the names in a directory
	Rename   Kind = "rename"   // Path to To
	Link     Kind = "link"     // To becomes another name of Path
	Unlink   Kind = "unlink"
	Mkdir    Kind = "mkdir"
	Rmdir    Kind = "rmdir"
	Symlink  Kind = "symlink"
	Mknod    Kind = "mknod" // a socket, a pipe or a device
	Chmod    Kind = "chmod"
	Chown    Kind = "chown"

	Publish Kind = "publish" // a request left for a node
	Begin   Kind = "begin"   // a node begins an effect
	End     Kind = "end"     // a node has ended one
)

// DiskSource is the source of all events of a file system; every other source is a node's name.
const DiskSource = "disk"

// Event is one thing that is about to happen, or that has happened if After is set.
type Event struct {
	N               int // from 1, given by Add
	Source          string
	Kind            Kind
	Path, To        string // relative to the file system's root
	Off             int64  // bytes
	Data            []byte // of a write: must not be changed once added
	Action, Request string // of an effect
	After           bool
}

// Disk tells whether the event is a file system's.
func (e Event) Disk() bool { return e.Source == DiskSource }

// Trace numbers events. It is safe for concurrent use: while a callback runs, every other Add waits.
type Trace struct {
	mu     sync.Mutex
	events []Event
	at     int
	do     func()
	hit    bool
}

// New makes an empty trace.
func New() *Trace { return &Trace{} }

// Add numbers an event and records it. A callback that waits for this number runs before Add returns, and so before what the
// event announces is done. The callback must not add to the trace, nor wait for who does.
func (t *Trace) Add(e Event) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.N = len(t.events) + 1
	t.events = append(t.events, e)
	if t.do != nil && !t.hit && e.N == t.at {
		t.hit = true
		t.do()
	}
	return e.N
}

// At has do run when event n is added, in place of what was asked for before. An n that is past already, or that never comes,
// never fires.
func (t *Trace) At(n int, do func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at, t.do, t.hit = n, do, false
}

// Hit tells whether the callback of At has run.
func (t *Trace) Hit() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hit
}

// Len is how many events there are.
func (t *Trace) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.events)
}

// Events returns all events so far.
func (t *Trace) Events() []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.events)
}
