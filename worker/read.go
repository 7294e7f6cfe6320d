package worker

import (
	"context"

	"provctl/journal"
	"provctl/receipt"
)

// What follows only reads the journal; see control.Reader.

// Story is all that is kept of a node.
func (w *Worker) Story(node receipt.NodeID) (journal.Story, error) { return w.j.Story(node) }

// Find lists the receipts whose id begins with a text.
func (w *Worker) Find(prefix string) ([]receipt.Receipt, error) { return w.j.Find(prefix) }

// Audit lists the acts of people.
func (w *Worker) Audit(from receipt.Seq) ([]journal.Act, error) { return w.j.Audit(from) }

// Standings lists nodes with what they are at.
func (w *Worker) Standings(after receipt.NodeID, most int) ([]journal.Standing, error) {
	return w.j.Standings(after, most)
}

// Backup copies the journal of one moment; the worker goes on meanwhile.
func (w *Worker) Backup(ctx context.Context) (*journal.Copy, error) { return w.j.Backup(ctx) }
