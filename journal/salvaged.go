package journal

import (
	"cmp"
	"fmt"
	"slices"

	"provctl/receipt"
)

// SalvageStory is Story of a damaged journal: what can be read of a node, and what cannot be read of the journal. Errors as for Salvage, and
// ErrNotFound if nothing is readable of the node.
func SalvageStory(dir string, id receipt.NodeID) (Story, []Lost, error) {
	out := Story{Jobs: []receipt.Job{}, Receipts: []receipt.Receipt{}, Acts: []Act{}}
	_, lost, err := salvaged(dir, func(e Exported) {
		switch {
		case e.Node != nil && e.Node.ID == id:
			out.Node = e.Node
		case e.Job != nil && e.Job.Node == id:
			out.Jobs = append(out.Jobs, *e.Job)
		case e.Receipt != nil && e.Receipt.Node == id:
			out.Receipts = append(out.Receipts, *e.Receipt)
		case e.Act != nil && e.Act.Node == id:
			out.Acts = append(out.Acts, *e.Act)
		}
	})
	if err == nil && out.Node == nil && len(out.Jobs)+len(out.Receipts)+len(out.Acts) == 0 {
		err = fmt.Errorf("node %.80q: %w: nothing can be read of it", id, ErrNotFound)
	}
	slices.SortFunc(out.Jobs, func(a, b receipt.Job) int { return cmp.Compare(a.Seq, b.Seq) })
	slices.SortFunc(out.Receipts, func(a, b receipt.Receipt) int { return cmp.Compare(a.Seq, b.Seq) })
	sortActs(out.Acts)
	return out, lost, err
}

// SalvageAudit is Audit of a damaged journal, with what cannot be read of it. Errors as for Salvage.
func SalvageAudit(dir string) ([]Act, []Lost, error) {
	var out []Act
	_, lost, err := salvaged(dir, func(e Exported) {
		if e.Act != nil {
			out = append(out, *e.Act)
		}
	})
	sortActs(out)
	return out, lost, err
}

func sortActs(acts []Act) {
	slices.SortFunc(acts, func(a, b Act) int { return cmp.Compare(a.Seq, b.Seq) })
}

// SalvageStandings is all Standings of a damaged journal, with what cannot be read of it. A node whose own record is lost is there if its job
// or its open receipt can be read. Errors as for Salvage.
func SalvageStandings(dir string) ([]Standing, []Lost, error) {
	found := map[receipt.NodeID]*Standing{}
	of := func(id receipt.NodeID) *Standing {
		if found[id] == nil {
			found[id] = &Standing{Node: receipt.Node{ID: id}}
		}
		return found[id]
	}
	_, lost, err := salvaged(dir, func(e Exported) {
		switch {
		case e.Node != nil:
			of(e.Node.ID).Node = *e.Node
		case e.Job != nil && e.Job.Status != receipt.Ended:
			of(e.Job.Node).Job = e.Job
		case e.Receipt != nil && e.Receipt.Status.Open():
			of(e.Receipt.Node).Open = e.Receipt
		}
	})
	out := make([]Standing, 0, len(found))
	for _, s := range found {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b Standing) int { return cmp.Compare(a.Node.ID, b.Node.ID) })
	return out, lost, err
}
