// Package receipt holds the words of provctl: nodes, jobs, receipts, evidence and verdicts, the one transition table each that
// jobs and receipts move by, the allow-lists that classify a node's reply, and the rules by which evidence proves an outcome.
//
// It is pure: no clock, no file, no network, and it imports nothing of ours. Everything that decides whether an effect may be
// sent again is in this package, so that the worker, the replay at start, the inspector and the model check share it.
package receipt
