// Package fleet runs a real Choria broker and real Choria servers on one machine.
//
// The broker runs inside the calling process, on a free port of 127.0.0.1, in organisation-issuer mode or, with
// Options.X509, with certificates of a CA of the fleet's own. Every node is a process of its own with the unchanged
// provision, rpcutil and discovery agents of go-choria: it writes its own files, executes itself again on a restart and
// keeps an append-only effect log. The demo, the tests, the crash tests and the benchmarks use the same fleet.
//
// With Options.Upgradable each node runs from an executable of its own and the fleet serves a repository of releases:
// go-choria's own updater downloads, checks, backs up and swaps the executable, and the node's version is that of the
// file it was started from.
//
// Faults are decided centrally: before and after each request of the provision agent a node asks the fleet over a Unix
// socket what to do, so that a Hook sees every request at the moment it happens and can kill a worker there. The fleet
// knows nothing of receipts or journals: what it reports comes from the nodes alone.
package fleet
