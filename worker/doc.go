// Package worker is the one locked process that provisions nodes: it settles what an earlier life left, then discovers,
// admits, runs passes in lanes, watches unknown receipts for proof, and stops without losing anything.
//
// It knows no go-choria type; cmd wires the real network in.
package worker
