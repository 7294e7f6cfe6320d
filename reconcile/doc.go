// Package reconcile carries an operator's decisions to the journal: verdicts on unknown receipts, and nodes admitted or released by
// hand.
//
// With a worker it goes through the worker, which alone writes while it runs. Without one it takes the worker lock itself,
// raises the epoch as any writer does, settles what the journal alone can settle, writes, and gives the lock back. It asks
// nothing and needs nothing but the state directory.
//
// Verdicts go in three steps: Look reads what is open, Sight.Resolve fixes what is decided on, so that it can be shown and confirmed, and
// DecideAll records the verdicts on exactly that: whatever changed in between is left alone.
package reconcile
