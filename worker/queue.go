package worker

import (
	"container/list"
	"time"

	"provctl/receipt"
)

// entry is a job that waits for a lane.
type entry struct {
	job       receipt.JobID
	node      receipt.NodeID
	seen      time.Time // last sighting of the node
	lasting   bool      // it never gets stale: it was claimed before, and keeps a count that a new job would not, or an operator wants to know
	notBefore time.Time
}

// entryOf is a job's entry, with the time at which its node was seen last.
func entryOf(job receipt.Job, seen time.Time) entry {
	return entry{job: job.ID, node: job.Node, seen: seen, lasting: job.Claims > 0 || job.Finish != "", notBefore: job.NotBefore}
}

// queue holds waiting jobs first come, first served, at most one per node. It is not safe for use by several goroutines.
type queue struct {
	order  *list.List // of *entry
	byNode map[receipt.NodeID]*list.Element
}

func newQueue() *queue {
	return &queue{order: list.New(), byNode: map[receipt.NodeID]*list.Element{}}
}

func (q *queue) len() int { return q.order.Len() }

// push adds an entry at the end; one for a node that waits already replaces it in place.
func (q *queue) push(e entry) {
	if el, ok := q.byNode[e.node]; ok {
		el.Value = &e
		return
	}
	q.byNode[e.node] = q.order.PushBack(&e)
}

// has tells whether the node waits.
func (q *queue) has(node receipt.NodeID) bool {
	_, ok := q.byNode[node]
	return ok
}

// sighted notes that a waiting node was seen again.
func (q *queue) sighted(node receipt.NodeID, at time.Time) {
	if el, ok := q.byNode[node]; ok {
		if e := el.Value.(*entry); at.After(e.seen) {
			e.seen = at
		}
	}
}

// next is the first entry that may run now; it stays. If none may, it says how long until one may; 0 means that nothing waits.
func (q *queue) next(now time.Time) (entry, bool, time.Duration) {
	var wait time.Duration
	for el := q.order.Front(); el != nil; el = el.Next() {
		e := el.Value.(*entry)
		left := e.notBefore.Sub(now)
		if left <= 0 {
			return *e, true, 0
		}
		if wait == 0 || left < wait {
			wait = left
		}
	}
	return entry{}, false, wait
}

// remove takes a node's entry out.
func (q *queue) remove(node receipt.NodeID) {
	if el, ok := q.byNode[node]; ok {
		q.order.Remove(el)
		delete(q.byNode, node)
	}
}
