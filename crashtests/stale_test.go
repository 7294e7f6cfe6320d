package crashtests

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"provctl/crashtests/oracle"
	"provctl/internal/crashpoint"
)

// suspended is one node whose worker is suspended on the way. A restart that the wait overtakes may prove itself by absence alone.
var suspended = &scene{name: "suspended", nodes: 1, plain: true}

// judged is the same with evidence that settles nothing, so that a person decides meanwhile.
var judged = &scene{name: "judged", nodes: 1, plain: true, values: map[string]any{"evidence": "manual"}}

// theft is what happens to the state directory of a suspended worker.
type theft struct {
	name string
	do   func(t *testing.T, dir string)
	// second says what becomes of a worker that starts then: its exit code, or goesOn.
	second int
	scene  *scene
}

const goesOn = -1

var thefts = []theft{
	{"none", func(*testing.T, string) {}, 5, suspended},
	{"lock-deleted", removeLock, 1, suspended}, // the journal itself is locked too
	{"journal-copied", copyJournal, goesOn, suspended},
	{"directory-copied", copyDirectory, goesOn, suspended},
	{"verdict", copyJournal, goesOn, judged},
}

func removeLock(t *testing.T, dir string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, "worker.lock")); err != nil {
		t.Fatal(err)
	}
}

// copyJournal puts copies of journal and marker in their places and removes the lock.
func copyJournal(t *testing.T, dir string) {
	t.Helper()
	removeLock(t, dir)
	for _, name := range []string{"journal.db", "journal.marker"} {
		path := filepath.Join(dir, name)
		copyFile(t, path, path+".copy")
		if err := os.Rename(path+".copy", path); err != nil {
			t.Fatal(err)
		}
	}
}

// copyDirectory puts a copy of the whole directory in its place.
func copyDirectory(t *testing.T, dir string) {
	t.Helper()
	old := dir + ".old"
	if err := os.Rename(dir, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(old)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			copyFile(t, filepath.Join(old, e.Name()), filepath.Join(dir, e.Name()))
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, fs.FileMode(0o600))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// staleCase suspends a worker at a pass of a point; it is woken early, as soon as the second one is at work, or when all is over.
type staleCase struct {
	point crashpoint.Point
	n     int // of the effect: key, configure, restart
	theft theft
	early bool
}

func (c staleCase) id() string {
	wake := "late"
	if c.early {
		wake = "early"
	}
	return fmt.Sprintf("%s#%d/%s/%s", c.point, c.n, c.theft.name, wake)
}

// staleCases are all of them, or those of the quick tier, around the configure.
func staleCases(quick bool) []staleCase {
	points := []crashpoint.Point{crashpoint.Begun, crashpoint.FencePassed, crashpoint.MarkedPublished, crashpoint.Flushed, crashpoint.ReplyRead}
	effects := []int{1, 2, 3}
	if quick {
		points, effects = []crashpoint.Point{crashpoint.Begun, crashpoint.FencePassed, crashpoint.ReplyRead}, []int{2}
	}
	var all []staleCase
	for _, n := range effects {
		for i, p := range points {
			for j, th := range thefts {
				for _, early := range []bool{true, false} {
					if quick && early == ((i+j)%2 == 0) {
						continue // each theft early at one point and late at the next
					}
					all = append(all, staleCase{p, n, th, early})
				}
			}
		}
	}
	return all
}

// TestSweep6Stale suspends a worker around its effects, lets a second one start, and wakes the first.
func TestSweep6Stale(t *testing.T) { sweep(t, staleCases(quick())) }

func (c staleCase) run(t *testing.T, l *lab) {
	add("stale-worker cases", 1)
	prog, err := pointed()
	if err != nil {
		t.Fatal(err)
	}
	tr := l.begin(t, c.theft.scene, prog, fmt.Sprintf("PROVCTL_CRASHPOINT_STOP=%s#%d", c.point, c.n))
	tr.run.Manual = c.theft.scene == judged
	first := tr.start()
	tr.lives[0].To = tr.lives[0].From // when it sleeps is not known exactly, so nothing is expected of it
	tr.awaitSuspended(first)
	began := time.Now()
	c.theft.do(t, tr.dir)
	tr.prog, tr.env = program, nil
	second := tr.start()
	if c.theft.second != goesOn {
		c.refusedSecond(tr, first, second, began)
		return
	}
	if c.early {
		tr.awaitRunning(second)
		tr.wake(first, true)
	}
	if tr.drive(second) {
		t.Fatal("the second worker was killed by nobody")
	}
	if !c.early {
		tr.wake(first, true)
	}
	tr.judge()
}

// refusedSecond: a second worker cannot start, and the first goes on when it wakes, or is fenced if its lock was taken away.
func (c staleCase) refusedSecond(tr *trial, first, second *process, began time.Time) {
	t := tr.t
	t.Helper()
	select {
	case <-second.done:
	case <-tr.ctx.Done():
		t.Fatal("the second worker does not end")
	}
	if code := second.cmd.ProcessState.ExitCode(); code != c.theft.second {
		t.Errorf("CASE=%s the second worker ended with exit code %d, not %d", t.Name(), code, c.theft.second)
	}
	if !c.early {
		waitUntil(tr, began.Add(ttl+500*time.Millisecond)) // beyond the horizon of whatever was in flight
	}
	fenced := c.theft.name == "lock-deleted"
	tr.worker = first
	tr.wake(first, fenced)
	if fenced {
		first = tr.start()
	}
	if tr.drive(first) {
		t.Fatal("the worker was killed by nobody")
	}
	tr.judge()
}

func waitUntil(tr *trial, at time.Time) {
	select {
	case <-time.After(time.Until(at)):
	case <-tr.ctx.Done():
	}
}

// awaitSuspended waits until the worker has stopped itself.
func (tr *trial) awaitSuspended(p *process) {
	tr.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if _, state, ok := strings.Cut(string(b), ") "); err == nil && ok && strings.HasPrefix(state, "T") {
			return
		}
		select {
		case <-tick.C:
		case <-p.done:
			tr.t.Fatalf("the worker ended before it was suspended: %s", p.cmd.ProcessState)
		case <-tr.ctx.Done():
			tr.t.Fatal("the worker never comes to where it is to be suspended")
		}
	}
}

// awaitRunning waits until the worker says that it has settled.
func (tr *trial) awaitRunning(p *process) {
	tr.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if w := tr.look().Worker; w != nil && w.State == "running" && w.PID == p.cmd.Process.Pid {
			return
		}
		select {
		case <-tick.C:
		case <-p.done:
			tr.t.Fatalf("the worker gave up: %s", p.cmd.ProcessState)
		case <-tr.ctx.Done():
			tr.t.Fatal("the worker does not get ready")
		}
	}
}

// wake lets a suspended worker go on. If it is fenced it must see that and exit with an error.
func (tr *trial) wake(p *process, fenced bool) {
	tr.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		tr.t.Fatal(err)
	}
	if !fenced {
		tr.mu.Lock()
		tr.lives = append(tr.lives, oracle.Life{Span: oracle.Span{From: time.Now()}})
		tr.mu.Unlock()
		return
	}
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		tr.t.Fatalf("CASE=%s the stale worker goes on", tr.t.Name())
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 1 {
		tr.t.Errorf("CASE=%s the stale worker ended with exit code %d, not 1", tr.t.Name(), code)
	}
}
