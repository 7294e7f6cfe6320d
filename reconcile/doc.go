// Package reconcile carries an operator's decisions to the journal: a verdict on an unknown receipt, and a node admitted by
// hand.
//
// With a worker it goes through the worker, which alone writes while it runs. Without one it takes the worker lock itself,
// raises the epoch as any writer does, settles what the journal alone can settle, writes, and gives the lock back. It asks
// nothing and needs nothing but the state directory.
package reconcile
