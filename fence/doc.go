// Package fence decides whether this process still has the right to act: the lock on the state directory, and the checks made
// right before an effect is published.
//
// Fences narrow the window of a suspended worker, they do not close it: between the check and the publish nothing locks the
// node. What closes it is the request's TTL, and that a node with an unknown outcome stays blocked.
package fence
