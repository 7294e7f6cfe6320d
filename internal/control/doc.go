// Package control is how the inspector and the operator's commands speak to a running worker: HTTP and JSON over a Unix socket
// in the state directory, and over a second one elsewhere if a group may command the worker.
//
// The worker serves it while it holds the worker lock, so a socket that nobody answers is a dead worker's and is replaced. The
// socket is for the worker's own user and for root, the second for the group's members too; who asks is what the kernel says (peer
// credentials), never what the client says, and a client tells nothing to a process that is not the worker's user's. Requests, answers and waiting are bounded on both sides. Errors that callers branch on keep their identity on the wire,
// so that a command exits alike through the worker and without it.
package control
