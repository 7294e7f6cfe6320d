package inspect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kballard/go-shellquote"

	"provctl/internal/control"
	"provctl/journal"
	"provctl/receipt"
)

// Source says where a report comes from.
type Source string

// The sources.
const (
	FromWorker  Source = "worker"  // through the running worker
	FromJournal Source = "journal" // no worker runs: the file itself
)

// View is what was fetched, before it is made into a report.
type View struct {
	Source   Source
	Live     *control.Live // nil without a worker
	Snapshot journal.Snapshot
	Damage   *Damage // nil: none was met
}

// tries and pause bridge the moment in which a worker starts or ends: it holds the journal and has no socket.
const (
	tries = 20
	pause = 100 * time.Millisecond
)

// Reader reads a state directory, an absolute path: through its worker, or from the journal when none runs. It writes nothing. Errors of
// all its methods: control.ErrHung (the worker does not answer: it names the process), journal.ErrBusy (a worker holds the journal and has
// no socket), receipt.ErrDamaged, journal.ErrMissing.
type Reader struct {
	Dir      string
	Patience time.Duration // before a worker counts as hung; 0: control.DefaultPatience
	Probe    Probe         // what was seen besides what the journal keeps
}

// Probe is what somebody saw of a receipt who keeps no journal. It is shown and weighed with the receipt, and settles nothing.
type Probe struct {
	Receipt  receipt.ReceiptID
	Evidence []receipt.Evidence
	Missing  []string // what gave no answer, and why
}

func (p Probe) addTo(open []receipt.Receipt) {
	for i := range open {
		if open[i].ID != p.Receipt {
			continue
		}
		for _, e := range p.Evidence {
			open[i].Note(e)
		}
	}
}

// Fetch is what Reader.Report does with the usual patience.
func Fetch(ctx context.Context, dir string) (Report, error) { return Reader{Dir: dir}.Report(ctx) }

// Report reports on all that is open. Of a damaged journal it gives what can be read, together with the error.
func (r Reader) Report(ctx context.Context) (Report, error) {
	v, err := read(ctx, r,
		func(c *control.Client) (View, error) {
			live, err := c.Live(ctx)
			if err != nil {
				return View{}, err
			}
			s, err := c.Snapshot(ctx)
			return View{Source: FromWorker, Live: &live, Snapshot: s}, err
		},
		func() (View, error) { return salvaged(r.Dir) })
	if err != nil && v.Damage == nil {
		return Report{}, err
	}
	r.Probe.addTo(v.Snapshot.Open)
	out := Build(v, r.Dir)
	out.Unanswered = r.Probe.Missing
	return out, err
}

// salvaged reads the journal, and of a damaged one what can be read.
func salvaged(dir string) (View, error) {
	s, err := journal.Read(dir)
	if !errors.Is(err, receipt.ErrDamaged) || errors.Is(err, journal.ErrMissing) {
		return View{Source: FromJournal, Snapshot: s}, err
	}
	s, lost, serr := journal.Salvage(dir)
	if serr != nil {
		return View{}, err
	}
	return View{Source: FromJournal, Snapshot: s, Damage: &Damage{Why: err.Error(), Unreadable: lost}}, err
}

// Timeline tells all that is kept of a node; journal.ErrNotFound if nothing is.
func (r Reader) Timeline(ctx context.Context, node receipt.NodeID) (Timeline, error) {
	type told struct {
		journal.Story
		Source
	}
	s, err := read(ctx, r,
		func(c *control.Client) (told, error) {
			s, err := c.Story(ctx, node)
			return told{s, FromWorker}, err
		},
		func() (told, error) {
			s, err := journal.ReadStory(r.Dir, node)
			return told{s, FromJournal}, err
		})
	if err != nil {
		return Timeline{}, err
	}
	return MakeTimeline(s.Story, node, s.Source, time.Now(), r.Dir), nil
}

// Find lists the receipts, ended ones included, whose id begins with a text, the open ones first, at most 20.
func (r Reader) Find(ctx context.Context, prefix string) ([]receipt.Receipt, error) {
	return read(ctx, r,
		func(c *control.Client) ([]receipt.Receipt, error) { return c.Find(ctx, prefix) },
		func() ([]receipt.Receipt, error) { return journal.FindIn(r.Dir, prefix) })
}

// Audit lists what people did, in order.
func (r Reader) Audit(ctx context.Context) ([]journal.Act, error) {
	return read(ctx, r,
		func(c *control.Client) ([]journal.Act, error) { return c.Audit(ctx, 0) },
		func() ([]journal.Act, error) { return journal.ReadAudit(r.Dir, 0) })
}

// read asks the worker, or the file when none runs.
func read[T any](ctx context.Context, r Reader, ask func(*control.Client) (T, error), file func() (T, error)) (T, error) {
	patience := r.Patience
	if patience == 0 {
		patience = control.DefaultPatience
	}
	var v T
	var err error
	for range tries {
		var c *control.Client
		c, err = control.DialPatience(r.Dir, patience)
		switch {
		case errors.Is(err, control.ErrNoWorker):
			v, err = file()
		case err == nil:
			v, err = ask(c)
		}
		if _, socket := control.IsSocket(r.Dir); errors.Is(err, control.ErrHung) && !socket {
			return v, fmt.Errorf("%w. It has the journal locked meanwhile; while it is stopped a copy can be read: cp -a %[2]s COPY; provctl inspect --state-dir COPY",
				err, shellquote.Join(r.Dir))
		}
		if !errors.Is(err, journal.ErrBusy) {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, ctx.Err()
		case <-time.After(pause):
		}
	}
	return v, fmt.Errorf("%w, which serves no %s: if it is a worker that starts or ends, run this again in a moment", err, control.SocketPath(r.Dir))
}
