// Package statuspage serves a read-only page about the running worker to browsers on the same host: its state, the blocked nodes with
// their evidence and the commands to type, what is in flight, a node's timeline, and how fast jobs end and commits are.
//
// Nothing here changes anything, and nothing here can hold up or end the worker: it is asked for one report at a time, which all
// readers share. What nodes and helpers said is shown as text, never as markup.
package statuspage
