package journal

import (
	"fmt"

	"provctl/receipt"
)

// Exported is one record of a journal; exactly one field is set.
type Exported struct {
	Journal *Info            `json:"journal,omitempty"` // the journal's record of itself
	Job     *receipt.Job     `json:"job,omitempty"`
	Receipt *receipt.Receipt `json:"receipt,omitempty"`
	Node    *receipt.Node    `json:"node,omitempty"`
	Act     *Act             `json:"act,omitempty"`
}

// Export calls each with every record that can be read, damaged journals included, and lists what cannot be read. It writes nothing. All is
// read before each is called, and nothing is held then: however slow it is, it keeps no worker from starting. The error is each's first; or,
// if anything cannot be read, receipt.ErrDamaged; or that of Salvage. ErrBusy while a worker has it open.
func Export(dir string, each func(Exported) error) ([]Lost, error) {
	var all []Exported // in memory, as Verify has them
	_, lost, err := salvaged(dir, func(r Exported) { all = append(all, r) })
	for _, r := range all {
		if failed := each(r); failed != nil {
			return lost, failed
		}
	}
	switch {
	case err != nil:
		return lost, fmt.Errorf("export journal: %w", err)
	case len(lost) > 0:
		return lost, fmt.Errorf("export journal: %w: %d places could not be read", receipt.ErrDamaged, len(lost))
	}
	return nil, nil
}
