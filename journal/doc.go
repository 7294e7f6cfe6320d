// Package journal is the durable memory of provctl: jobs, receipts and what is remembered of nodes, in one bbolt file with a
// marker beside it.
//
// It speaks the domain's verbs: no bbolt type and no byte slice leaves it. A verb that returns without an error is durable; a
// verb that returns an error has written nothing, except ErrStopped, after which it is not known whether the last change was
// recorded: the process must send no further effect, exit, and read again at the next start.
//
// Every change gets a sequence number; order is by it and never by clock. Waiting changes are committed together, at once and
// without a delay timer. After each commit and before anybody is answered, the marker notes the sequence number that is about
// to be acknowledged, so that a journal which was restored, swapped or rolled back is noticed at the next start.
//
// The caller holds the worker lock (package fence) for as long as a Journal is open. Read needs no lock.
package journal
