package trace_test

import (
	"fmt"
	"sync"
	"testing"

	"provctl/crashtests/trace"
)

func TestNumbersHaveNoGapsAndKeepEachSourcesOrder(t *testing.T) {
	t.Parallel()
	tr := trace.New()
	const sources, each = 8, 200
	var wg sync.WaitGroup
	for s := range sources {
		wg.Go(func() {
			last := 0
			for i := range each {
				n := tr.Add(trace.Event{Source: fmt.Sprint(s), Off: int64(i)})
				if n <= last {
					t.Errorf("source %d: number %d after %d", s, n, last)
				}
				last = n
			}
		})
	}
	wg.Wait()
	next := map[string]int64{}
	for i, e := range tr.Events() {
		if e.N != i+1 || e.Off != next[e.Source] {
			t.Fatalf("event %d is %+v, want offset %d", i+1, e, next[e.Source])
		}
		next[e.Source]++
	}
	if tr.Len() != sources*each {
		t.Errorf("%d events, want %d", tr.Len(), sources*each)
	}
}

func TestAtFiresOnceBeforeAddReturnsAndHoldsTheOthers(t *testing.T) {
	t.Parallel()
	tr := trace.New()
	inside, release, fired := make(chan struct{}), make(chan struct{}), 0
	tr.At(3, func() {
		fired++
		close(inside)
		<-release
	})
	tr.Add(trace.Event{})
	tr.Add(trace.Event{})
	if tr.Hit() {
		t.Error("hit before its event")
	}
	third, fourth := make(chan struct{}), make(chan int, 1)
	go func() {
		tr.Add(trace.Event{})
		close(third)
	}()
	<-inside
	go func() { fourth <- tr.Add(trace.Event{}) }()
	select {
	case <-third:
		t.Error("Add returned while its callback ran")
	case n := <-fourth:
		t.Errorf("event %d was added while a callback ran", n)
	default:
	}
	close(release)
	<-third
	if n := <-fourth; n != 4 || fired != 1 || !tr.Hit() {
		t.Errorf("the fourth has number %d, the callback ran %d times, hit is %v", n, fired, tr.Hit())
	}
}

func TestAtBeyondTheEndOrInThePastNeverFires(t *testing.T) {
	t.Parallel()
	tr := trace.New()
	tr.Add(trace.Event{})
	for _, n := range []int{0, 1, 9} {
		tr.At(n, func() { t.Errorf("fired at %d", n) })
		tr.Add(trace.Event{})
		if tr.Hit() {
			t.Errorf("At(%d) counts as hit", n)
		}
	}
	tr.At(tr.Len()+1, func() {})
	tr.Add(trace.Event{})
	if !tr.Hit() {
		t.Error("a second At does not replace the first")
	}
}
