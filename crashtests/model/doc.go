// Package model searches every interleaving of provctl's protocol on one node: two workers, crashes, requests that arrive late or
// not at all, lost replies, a stolen lock, a node that restarts, and an operator. It calls the real transition tables, proof rules
// and reply classification of package receipt, so that they cannot drift from what is checked here; the rest of the program is
// mirrored by small functions that name what they mirror.
//
// Where to look: state.go is what a state holds, search.go the breadth-first search, steps.go the list of all that can happen.
// node.go, wire.go, pass.go, start.go, evidence.go and operator.go do it, journal.go mirrors the journal, invariants.go says what
// must hold, faults.go has the seeded faults, and bounds.go the bounds of a run and the assumptions it makes.
//
// A step is a method on next: it checks whether it can happen, changes the state, and returns true. To add a fault, name it in
// faults.go, ask for it with n.m.has(...) where the program would go wrong, and give it a line in the table of teeth.
package model
