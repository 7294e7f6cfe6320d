package worker

import (
	"testing"
	"time"
)

func TestQueueIsFirstComeFirstServed(t *testing.T) {
	now := time.Unix(1000, 0)
	q := newQueue()
	if _, ok, wait := q.next(now); ok || wait != 0 {
		t.Errorf("an empty queue gave something, or a time to wait: %t, %s", ok, wait)
	}
	q.push(entry{job: "1", node: "a", seen: now})
	q.push(entry{job: "2", node: "b", seen: now})
	q.push(entry{job: "3", node: "a", seen: now}) // in its place: one job per node
	if e, ok, _ := q.next(now); !ok || e.job != "3" || q.len() != 2 {
		t.Errorf("first is %+v (%t) of %d", e, ok, q.len())
	}
	if e, ok, _ := q.next(now); !ok || e.job != "3" {
		t.Errorf("next took the entry out: %+v", e)
	}
	q.remove("a")
	q.remove("a")
	if e, ok, _ := q.next(now); !ok || e.job != "2" || q.len() != 1 {
		t.Errorf("then comes %+v (%t) of %d", e, ok, q.len())
	}
}

func TestQueueWaitsForTheEarliest(t *testing.T) {
	now := time.Unix(1000, 0)
	q := newQueue()
	q.push(entry{job: "1", node: "a", notBefore: now.Add(5 * time.Second)})
	q.push(entry{job: "2", node: "b", notBefore: now.Add(3 * time.Second)})
	if e, ok, wait := q.next(now); ok || wait != 3*time.Second {
		t.Errorf("%+v may run (%t), or the wait is %s", e, ok, wait)
	}
	q.push(entry{job: "3", node: "c"})
	if e, ok, _ := q.next(now); !ok || e.job != "3" {
		t.Errorf("one that may run is kept up by those that may not: %+v (%t)", e, ok)
	}
	if e, ok, _ := q.next(now.Add(4 * time.Second)); !ok || e.job != "2" {
		t.Errorf("its time has come, yet first is %+v (%t)", e, ok)
	}
}

func TestQueueNotesSightings(t *testing.T) {
	now := time.Unix(1000, 0)
	q := newQueue()
	q.push(entry{job: "1", node: "a", seen: now})
	q.sighted("a", now.Add(time.Second))
	q.sighted("a", now) // an older sighting takes nothing back
	q.sighted("b", now) // nobody waits
	if e, _, _ := q.next(now); !e.seen.Equal(now.Add(time.Second)) || q.len() != 1 {
		t.Errorf("%+v of %d", e, q.len())
	}
}
