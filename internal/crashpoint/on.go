//go:build crashpoints

package crashpoint

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Built tells whether this program has its crash points.
const Built = true

// Here is the moment named p: the process may end or wait there, as the environment says. It may be called by several goroutines.
func Here(p Point) { here.pass(p) }

var here = &state{kill: target("PROVCTL_CRASHPOINT"), stop: target("PROVCTL_CRASHPOINT_STOP"), log: logFile("PROVCTL_CRASHPOINTS_LOG")}

// goal is one pass of one point; the zero value is none.
type goal struct {
	point Point
	pass  int
}

type state struct {
	kill, stop goal
	log        *os.File

	mu     sync.Mutex
	passed map[Point]int
}

func (s *state) pass(p Point) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.passed == nil {
		s.passed = map[Point]int{}
	}
	s.passed[p]++
	if s.log != nil {
		if _, err := s.log.WriteString(string(p) + "\n"); err != nil {
			refuse("PROVCTL_CRASHPOINTS_LOG", err.Error())
		}
	}
	now := goal{p, s.passed[p]}
	if now == s.kill {
		signal(unix.SIGKILL)
		select {} // until the signal arrives
	}
	if now == s.stop {
		signal(unix.SIGSTOP)
	}
}

// signal sends a signal to the calling thread, which takes it before it runs on; another thread might take its time.
func signal(sig unix.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Tgkill(os.Getpid(), unix.Gettid(), sig); err != nil {
		refuse("crash point", err.Error())
	}
}

func target(variable string) goal {
	text, ok := os.LookupEnv(variable)
	if !ok {
		return goal{}
	}
	g, err := parse(text)
	if err != nil {
		refuse(variable, err.Error())
	}
	return g
}

func parse(text string) (goal, error) {
	name, count, counted := strings.Cut(text, "#")
	g := goal{Point(name), 1}
	if counted {
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 {
			return goal{}, fmt.Errorf("%q: after # comes the number of the pass, from 1", text)
		}
		g.pass = n
	}
	for _, p := range All() {
		if p == g.point {
			return g, nil
		}
	}
	return goal{}, fmt.Errorf("%q names no crash point; they are in internal/crashpoint/points.go", text)
}

func logFile(variable string) *os.File {
	path, ok := os.LookupEnv(variable)
	if !ok {
		return nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		refuse(variable, err.Error())
	}
	return f
}

// refuse ends a test build that could not do as it was told: a run that goes on would prove nothing.
func refuse(what, why string) {
	fmt.Fprintf(os.Stderr, "crash points: %s: %s\n", what, why)
	os.Exit(97)
}
