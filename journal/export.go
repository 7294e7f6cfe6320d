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

// Export calls each with every record that can be read, damaged journals included, and lists what cannot be read. It writes nothing. The
// error is each's first; or, if anything cannot be read, receipt.ErrDamaged; or that of Salvage. ErrBusy while a worker has it open.
func Export(dir string, each func(Exported) error) ([]Lost, error) {
	var failed error
	_, lost, err := salvaged(dir, func(r Exported) {
		if failed == nil {
			failed = each(r)
		}
	})
	switch {
	case failed != nil:
		return lost, failed
	case err != nil:
		return lost, fmt.Errorf("export journal: %w", err)
	case len(lost) > 0:
		return lost, fmt.Errorf("export journal: %w: %d places could not be read", receipt.ErrDamaged, len(lost))
	}
	return nil, nil
}
