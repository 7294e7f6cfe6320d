// Package fleet runs a real Choria broker and real Choria servers on one machine.
//
// The broker runs inside the calling process, in organisation-issuer mode, on a free port of 127.0.0.1. Every node is a
// process of its own with the unchanged provision, rpcutil and discovery agents of go-choria: it writes its own files,
// executes itself again on a restart and keeps an append-only effect log. The demo, the tests, the crash tests and the
// benchmarks use the same fleet.
//
// Faults are decided centrally: before and after each request of the provision agent a node asks the fleet over a Unix
// socket what to do, so that a Hook sees every request at the moment it happens and can kill a worker there. The fleet
// knows nothing of receipts or journals: what it reports comes from the nodes alone.
package fleet
