package crashtests

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"provctl/crashtests/tracefs"
)

// alone is one node on its way from provisioning to the end: every step once.
var alone = &scene{name: "alone", nodes: 1}

// slots bound how many trials run at a time, over all tests: each mostly waits, but a machine that cannot keep up lets requests
// expire, which is no fault of the program.
var slots = make(chan struct{}, 10)

// labs runs cases on several labs at a time. next gives the next case to run, one caller at a time; false ends it.
func labs(t *testing.T, n, nodes int, next func() (func(*testing.T, *lab), string, bool)) {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	one := func() (func(*testing.T, *lab), string, bool) {
		mu.Lock()
		defer mu.Unlock()
		return next()
	}
	for range n {
		l := newLab(t, nodes)
		wg.Go(func() {
			for {
				do, name, ok := one()
				if !ok {
					return
				}
				slots <- struct{}{}
				t.Run(name, func(t *testing.T) { do(t, l) })
				<-slots
			}
		})
	}
	wg.Wait()
}

// sweep is a sweep whose cases are known beforehand: it runs those that are wanted on several labs of one node.
func sweep[C interface {
	id() string
	run(*testing.T, *lab)
}](t *testing.T, cases []C) {
	t.Helper()
	t.Parallel()
	if !mine(t) {
		return
	}
	labs(t, 8, 1, func() (func(*testing.T, *lab), string, bool) {
		for len(cases) > 0 {
			c := cases[0]
			cases = cases[1:]
			if wanted(t.Name() + "/" + c.id()) {
				return c.run, c.id(), true
			}
		}
		return nil, "", false
	})
}

// rising hands out the numbers from 1 until one of them is said to be beyond the end: that all before were tried is the proof
// that the sweep is whole.
type rising struct {
	mu     sync.Mutex
	last   int
	beyond int // the first number that nothing happened at; 0: not known
	stride int
}

func (r *rising) next() (int, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.last + max(1, r.stride)
	if r.beyond > 0 && n >= r.beyond {
		return 0, false
	}
	r.last = n
	return n, true
}

func (r *rising) survived(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.beyond == 0 || n < r.beyond {
		r.beyond = n
	}
}

// needFUSE says what does not run where there is no FUSE; on CI that is a failure.
func needFUSE(t *testing.T) bool {
	t.Helper()
	err := tracefs.Available()
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	if err != nil {
		t.Logf("NOT RUN: %v", err)
	}
	return err == nil
}

// TestSweep1Disk kills the released program before each event of a run, on the disk and on the nodes, and lets the next one go
// on.
func TestSweep1Disk(t *testing.T) {
	t.Parallel()
	if !mine(t) || !needFUSE(t) {
		return
	}
	events := &rising{stride: 1}
	if quick() {
		events.stride = 6
	}
	labs(t, 8, 1, func() (func(*testing.T, *lab), string, bool) {
		for {
			n, ok := events.next()
			if !ok {
				return nil, "", false
			}
			name := fmt.Sprintf("event-%d", n)
			if !wanted(t.Name() + "/" + name) {
				if n > 1000 {
					events.survived(n)
				}
				continue
			}
			return func(t *testing.T, l *lab) { killAtEvent(t, l, n, events) }, name, true
		}
	})
	decided.check(t)
	if !quick() {
		count(t, "disk and effect events of a run", events.beyond-1)
	}
}

func killAtEvent(t *testing.T, l *lab, n int, events *rising) {
	tr := l.begin(t, alone, program)
	tr.killAt(n)
	if !tr.play() {
		events.survived(n)
		tr.judge()
		return
	}
	add("kills", 1)
	mark("distinct states after a kill", tr.recover(program))
	decided.note(tr.by > 0)
}

// share is the part of cases in which a person had to decide: more of them than truly ambiguous ones would be over-blocking that no
// single case shows.
type share struct {
	mu        sync.Mutex
	some, all int
}

var decided share

func (s *share) note(is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all++
	if is {
		s.some++
	}
}

// check allows a fifth: of the events of a run those between the publish of a configure and its settlement are ambiguous, fewer than a
// tenth; the rest is for a machine under load.
func (s *share) check(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Logf("a person decided in %d of %d cases", s.some, s.all)
	if s.some*5 > s.all {
		t.Errorf("a person had to decide in %d of %d cases: that is over-blocking", s.some, s.all)
	}
}
