// Package inspect shows what a state directory holds: the worker if one runs, what is blocked or in flight and what an operator
// can do about it, and which nodes are held or out.
//
// It reads only. With a worker it asks through the worker's socket; without one it opens the journal read-only, copies what it
// needs, and closes it before anything is printed, so that it never keeps a worker from starting. What it shows of the proof
// rules is the same code by which the worker settles, as advice.
package inspect
