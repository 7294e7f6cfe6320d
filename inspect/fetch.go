package inspect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"provctl/internal/control"
	"provctl/journal"
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
}

// tries and pause bridge the moment in which a worker starts or ends: it holds the journal and has no socket.
const (
	tries = 20
	pause = 100 * time.Millisecond
)

// Fetch reports on a state directory, an absolute path: through its worker, or from the journal when none runs. It writes
// nothing. Errors: control.ErrHung (the worker does not answer: it names the process), journal.ErrBusy (a worker holds the journal and has no
// socket), receipt.ErrDamaged, journal.ErrMissing.
func Fetch(ctx context.Context, dir string) (Report, error) {
	return FetchPatiently(ctx, dir, control.DefaultPatience)
}

// FetchPatiently is Fetch with another patience before a worker counts as hung.
func FetchPatiently(ctx context.Context, dir string, patience time.Duration) (Report, error) {
	var err error
	for range tries {
		var v View
		if v, err = fetch(ctx, dir, patience); err == nil {
			return Build(v, dir), nil
		}
		if !errors.Is(err, journal.ErrBusy) {
			return Report{}, err
		}
		select {
		case <-ctx.Done():
			return Report{}, ctx.Err()
		case <-time.After(pause):
		}
	}
	return Report{}, fmt.Errorf("%w, which serves no %s: if it is a worker that starts or ends, run this again in a moment", err, control.SocketPath(dir))
}

func fetch(ctx context.Context, dir string, patience time.Duration) (View, error) {
	c, err := control.DialPatience(dir, patience)
	switch {
	case errors.Is(err, control.ErrNoWorker):
		s, err := journal.Read(dir)
		return View{Source: FromJournal, Snapshot: s}, err
	case err != nil:
		return View{}, err
	}
	live, err := c.Live(ctx)
	if err != nil {
		return View{}, err
	}
	s, err := c.Snapshot(ctx)
	if err != nil {
		return View{}, err
	}
	return View{Source: FromWorker, Live: &live, Snapshot: s}, nil
}
