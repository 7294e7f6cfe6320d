package model

import (
	"errors"
	"hash/maphash"

	"provctl/receipt"
)

// Model is one search: bounds, seeded faults, and invariants to look past.
type Model struct {
	Bounds Bounds
	Faults []Fault
	Past   []Invariant // not checked, to see what comes of it

	happened []int
	proved   map[string]int
	faulty   map[Fault]bool
	past     map[Invariant]bool
	scratch  next
}

// Result is what a search found.
type Result struct {
	States, Edges int
	Finals        int            // states that work may rest in
	Blocked       int            // of those, with a blocked node
	Full          int            // states in which there was no room for another effect
	Happened      map[string]int // how often each step was taken, by what it says
	Proved        map[string]int // how often each proof rule concluded, by name
	Trace         *Trace         // the shortest way to a violation; nil if there is none
}

// maxStates bounds a search; beyond it Search gives up.
const maxStates = 8_000_000

// ErrTooMany is returned by Search when the bounds allow more states than it is willing to look at.
var ErrTooMany = errors.New("more states than the search is willing to look at: lower the bounds")

// Search visits every state within the bounds, nearest first. It stops at the first violation.
func (m *Model) Search() (Result, error) {
	m.happened, m.proved = make([]int, len(steps)), map[string]int{}
	m.faulty, m.past = map[Fault]bool{}, map[Invariant]bool{}
	for _, f := range m.Faults {
		m.faulty[f] = true
	}
	for _, i := range m.Past {
		m.past[i] = true
	}
	first := State{Node: Node{Inc: 1, Mode: Answers}, Left: m.Bounds.Budget}
	v := newVisited()
	v.add(&first, 0, Step{})
	var r Result
	var from, to []uint32
	var finals []uint32
	for at := uint32(0); at < v.count; at++ {
		s := *v.at(at)
		if s.Broken != 0 {
			return v.report(r, len(to), at, s.Broken), nil
		}
		if v.count > maxStates {
			return v.report(r, len(to), 0, 0), ErrTooMany
		}
		if m.final(&s) {
			finals = append(finals, at)
			if s.Job.Status == receipt.Blocked {
				r.Blocked++
				if s.overBlocked() {
					return v.report(r, len(to), at, OverBlocked), nil
				}
			}
		}
		if s.used() == maxOps {
			r.Full++
		}
		m.each(&s, func(st Step, n *State) {
			from, to = append(from, at), append(to, v.add(n, at, st))
		})
	}
	r.Finals = len(finals)
	if lost, ok := unreached(int(v.count), from, to, finals); ok {
		return v.report(r, len(to), lost, JobLost), nil
	}
	r.Happened, r.Proved = m.counts(), m.proved
	return v.report(r, len(to), 0, 0), nil
}

func (m *Model) counts() map[string]int {
	out := map[string]int{}
	for k, n := range m.happened {
		out[steps[k].says] = n
	}
	return out
}

// unreached finds the first state from which no final state can be reached.
func unreached(states int, from, to, finals []uint32) (uint32, bool) {
	first := make([]uint32, states+1) // incoming edges by target: a counting sort
	for _, t := range to {
		first[t+1]++
	}
	for i := range states {
		first[i+1] += first[i]
	}
	fill := append([]uint32(nil), first[:states]...)
	sources := make([]uint32, len(to))
	for e, t := range to {
		sources[fill[t]] = from[e]
		fill[t]++
	}
	seen := make([]bool, states)
	for _, f := range finals {
		seen[f] = true
	}
	for todo := finals; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, s := range sources[first[at]:first[at+1]] {
			if !seen[s] {
				seen[s] = true
				todo = append(todo, s)
			}
		}
	}
	for i, ok := range seen {
		if !ok {
			return uint32(i), true
		}
	}
	return 0, false
}

// visited is the set of states seen, with the way back from each: a hash table of numbers into states.
type visited struct {
	seed   maphash.Seed
	count  uint32
	chunks [][]State // of chunkSize each: nothing is copied as they grow
	parent []uint32
	by     []Step
	table  []uint32 // number + 1, 0 empty
}

const chunkSize = 1 << 12

func (v *visited) at(n uint32) *State { return &v.chunks[n/chunkSize][n%chunkSize] }

func newVisited() *visited { return &visited{seed: maphash.MakeSeed(), table: make([]uint32, 1<<16)} }

// add gives a state its number; parent and step count only if it is new.
func (v *visited) add(s *State, parent uint32, by Step) uint32 {
	if 2*int(v.count) >= len(v.table) {
		v.table = make([]uint32, 2*len(v.table))
		for i := range v.count {
			v.table[v.slot(v.at(i))] = i + 1
		}
	}
	slot := v.slot(s)
	if v.table[slot] == 0 {
		if v.count%chunkSize == 0 {
			v.chunks = append(v.chunks, make([]State, chunkSize))
		}
		*v.at(v.count) = *s
		v.count++
		v.parent, v.by = append(v.parent, parent), append(v.by, by)
		v.table[slot] = v.count
	}
	return v.table[slot] - 1
}

func (v *visited) slot(s *State) int {
	mask := len(v.table) - 1
	for at := int(maphash.Comparable(v.seed, *s)) & mask; ; at = (at + 1) & mask {
		if n := v.table[at]; n == 0 || *v.at(n - 1) == *s {
			return at
		}
	}
}

func (v *visited) report(r Result, edges int, at uint32, broken Invariant) Result {
	r.States, r.Edges = int(v.count), edges
	if broken != 0 {
		r.Trace = v.trace(at, broken)
	}
	return r
}
