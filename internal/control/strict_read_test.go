package control

import (
	"provctl/journal"
	"provctl/receipt"
)

func (strict) Story(receipt.NodeID) (journal.Story, error) { return journal.Story{}, nil }

func (strict) Find(string) ([]receipt.Receipt, error) { return nil, nil }

func (strict) Audit(receipt.Seq) ([]journal.Act, error) { return nil, nil }

func (strict) Standings(receipt.NodeID, int) ([]journal.Standing, error) { return nil, nil }
