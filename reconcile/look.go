package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"provctl/fence"
	"provctl/inspect"
	"provctl/internal/control"
	"provctl/journal"
	"provctl/receipt"
)

// Sight is what there is to decide on: the open receipts of one moment.
type Sight struct {
	Dir    string            // the state directory
	Taken  time.Time         // by the clock of whoever will decide
	Worker bool              // it comes from a running worker, which gathers evidence
	Open   []receipt.Receipt // in sequence order

	find func(ctx context.Context, id string) ([]receipt.Receipt, error) // among all that are kept; nil: none is found
}

// Look reads what is open, through the worker or from the journal when none runs. It writes nothing. Errors: fence.ErrHeld (a worker holds
// the journal and does not answer), receipt.ErrDamaged, journal.ErrMissing.
func Look(ctx context.Context, dir string) (Sight, error) {
	var err error
	for range tries {
		var s Sight
		if s, err = look(ctx, dir); !errors.Is(err, journal.ErrBusy) {
			s.Dir, s.find = dir, inspect.Reader{Dir: dir}.Find
			return s, err
		}
		if err := pauseFor(ctx, between); err != nil {
			return Sight{}, err
		}
	}
	return Sight{}, fmt.Errorf("%w: %w, which serves no %s: if it is a worker that starts or ends, run this again in a moment", fence.ErrHeld, err, control.SocketPath(dir))
}

func look(ctx context.Context, dir string) (Sight, error) {
	c, err := control.Dial(dir)
	if errors.Is(err, control.ErrNoWorker) {
		s, err := journal.Read(dir)
		return Sight{Taken: s.Taken, Open: s.Open}, err
	}
	if err == nil {
		_, err = c.Live(ctx) // finds out sooner than the snapshot that a worker hangs
	}
	var s journal.Snapshot
	if err == nil {
		s, err = c.Snapshot(ctx)
	}
	if errors.Is(err, control.ErrHung) {
		err = fmt.Errorf("%w: %w", fence.ErrHeld, err)
	}
	return Sight{Taken: s.Taken, Worker: true, Open: s.Open}, err
}

// pauseFor waits, or ends with the context's error.
func pauseFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// Item is a request and the receipt that it names, as it was seen: Request.Seen is never 0 in it unless the receipt is not open.
type Item struct {
	Request
	Found receipt.Receipt // zero if nothing is known under the name; only its ID if it is not open and could not be read

	changed bool // while it waited
}

// Resolve finds what the requests name and fixes what they decide on. ErrAmbiguous and ErrTwice are about the requests themselves: then
// none should be recorded. What names nothing that is open stays an item, to say what became of it.
func (s Sight) Resolve(ctx context.Context, requests []Request) ([]Item, error) {
	ids := make([]string, len(s.Open))
	byID := make(map[string]receipt.Receipt, len(s.Open))
	for i, r := range s.Open {
		ids[i], byID[string(r.ID)] = string(r.ID), r
	}
	slices.Sort(ids)
	items := make([]Item, 0, len(requests))
	named := make(map[receipt.ReceiptID]bool, len(requests))
	var wrong []error
	lost := 0
	for _, q := range requests {
		hits := startingWith(ids, strings.ToUpper(q.Receipt))
		i := Item{Request: q}
		switch {
		case len(hits) == 1:
			i.Found = byID[hits[0]]
		case len(hits) > 1:
			wrong = append(wrong, ambiguous(q.Receipt, hits))
			continue
		default:
			i.Found, lost = s.settled(ctx, q.Receipt, lost)
		}
		if i.Seen == 0 && i.Found.Status.Open() {
			i.Seen = i.Found.Version
		}
		if id := i.Found.ID; id != "" && named[id] {
			wrong = append(wrong, fmt.Errorf("receipt %s: %w: give one verdict on it", id, ErrTwice))
		}
		named[i.Found.ID] = true
		items = append(items, i)
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong[:min(len(wrong), maxShown)]...)
	}
	return items, nil
}

// maxShown bounds how many of many are named in a message.
const maxShown = 10

// settled finds a receipt that is not open, if too many were not looked for already.
func (s Sight) settled(ctx context.Context, name string, before int) (receipt.Receipt, int) {
	if s.find != nil && before < maxFound {
		if found, err := s.find(ctx, name); err == nil && len(found) == 1 && !found[0].Status.Open() {
			return found[0], before + 1
		}
	}
	if len(name) == fullID {
		return receipt.Receipt{ID: receipt.ReceiptID(strings.ToUpper(name))}, before + 1
	}
	return receipt.Receipt{}, before + 1
}

// maxFound bounds how many settled receipts are looked up: each is a question of its own.
const maxFound = 100

// startingWith are the sorted ids that begin with a name.
func startingWith(ids []string, name string) []string {
	from, _ := slices.BinarySearch(ids, name)
	to := from
	for to < len(ids) && strings.HasPrefix(ids[to], name) {
		to++
	}
	return ids[from:to]
}

func ambiguous(name string, hits []string) error {
	more := ""
	if n := len(hits) - maxShown; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Errorf("receipt %s: %w: it begins the ids of %d open receipts: %s%s; give more characters",
		name, ErrAmbiguous, len(hits), strings.Join(hits[:min(len(hits), maxShown)], ", "), more)
}

// Refusal says why a verdict would be refused if it were given at that moment: nil if, as far as can be seen, it would be recorded. It is
// what the journal decides, by the same rules, without writing.
func (s Sight) Refusal(i Item) error {
	r := i.Found
	switch {
	case r.ID == "":
		return i.nothing()
	case i.Found.Status == 0:
		return fmt.Errorf("receipt %s: %w: it is not open: 'provctl inspect %s' shows what became of it", r.ID, receipt.ErrStale, r.ID)
	case i.standsAlready():
		return i.already()
	case r.Status == receipt.Pending && s.Worker:
		return fmt.Errorf("receipt %s: %w: the worker waits for %s on %s until %s at most", r.ID, journal.ErrInFlight, r.Action, r.Node, clock(r.Horizon.Time))
	case i.changed:
		return fmt.Errorf("receipt %s: %w: look again", r.ID, receipt.ErrStale)
	case r.Version != i.Seen:
		return fmt.Errorf("receipt %s: %w: version %d was seen, it is %s at version %d: look again", r.ID, receipt.ErrStale, i.Seen, r.Status, r.Version)
	}
	r.Status = receipt.Unknown // what a dead worker left pending becomes unknown before a verdict is taken
	switch {
	case i.Verdict == receipt.VerdictFinish && r.Action != receipt.Configure:
		return fmt.Errorf("receipt %s: %w: it is a %s: only a configure can be found out about by a restart", r.ID, receipt.ErrInvalid, r.Action)
	case !r.Horizon.Passed(s.Taken):
		return &journal.BeforeHorizonError{Receipt: r.ID, Left: r.Horizon.Left(s.Taken)}
	case i.Verdict == receipt.VerdictNotApplied && r.MayStillRun():
		return fmt.Errorf("receipt %s: %w: %s has not shown since %s that it has done what it accepted", r.ID, journal.ErrMayStillRun, r.Node, clock(r.Horizon.Time))
	}
	if why := s.Contradiction(i); why != "" && !i.Contradict {
		return fmt.Errorf("receipt %s: %w: %s; look again, or insist with --contradict-evidence, which is put on record", r.ID, journal.ErrContradicted, why)
	}
	return nil
}

// standsAlready reports whether the receipt was settled by anything but a verdict that this one may take back. Whether it may, with what
// was begun since, is for the journal to say.
func (i Item) standsAlready() bool {
	r := i.Found
	if r.Status == 0 || r.Status.Open() {
		return false
	}
	last := len(r.Decisions) - 1
	return i.Seen != r.Version || r.Settled != "verdict" || last < 0 || r.Decisions[last].Verdict == i.Verdict
}

// already says how the receipt was settled.
func (i Item) already() error {
	r := i.Found
	by := r.Settled
	if n := len(r.Decisions); n > 0 && by == "verdict" {
		by = fmt.Sprintf("verdict of %s: %s", r.Decisions[n-1].By, r.Decisions[n-1].Reason)
	}
	again := ""
	if r.Settled == "verdict" {
		again = fmt.Sprintf("; to take that back give another verdict with --seen %d", r.Version)
	}
	return fmt.Errorf("receipt %s: %w: it is %s already, by %s%s", r.ID, receipt.ErrStale, r.Status, by, again)
}

// Contradiction says what evidence concludes otherwise than the item's verdict; empty if nothing does.
func (s Sight) Contradiction(i Item) string {
	if i.Found.Status == 0 {
		return ""
	}
	return receipt.Contradiction(i.Found, i.Verdict, s.Taken)
}

// nothing: no receipt is open under this name.
func (i Item) nothing() error {
	return fmt.Errorf("receipt %s: %w among the open ones: 'provctl inspect' lists them; one that is settled needs its whole id", strings.ToUpper(i.Receipt), journal.ErrNotFound)
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05 MST") }
