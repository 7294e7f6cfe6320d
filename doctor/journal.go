package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"provctl/inspect"
	"provctl/journal"
	"provctl/receipt"
)

const (
	restoring = "docs/runbook.md tells what to do, under 'The journal is damaged, lost or restored'"
	// watchEvery is how soon a worker that starts has the journal for itself: a check shares the file, and a start waits for it only for seconds.
	watchEvery = 200 * time.Millisecond
)

// errWorkerCame ends a check of the journal.
var errWorkerCame = errors.New("a worker took the lock meanwhile")

// journal looks at the journal through its worker, or else at the file.
func (v *visit) journal(ctx context.Context) {
	if !v.usable {
		return
	}
	switch {
	case v.live != nil:
		s, err := v.client.Snapshot(ctx)
		if err != nil {
			v.warn(checkJournal, "run this again", "the worker did not tell of its journal: %v", err)
			return
		}
		v.sound(s, "in use by the worker")
	case v.hung || v.holder.PID > 0:
		v.skip(checkJournal, "%s is in use by process %d, which cannot be asked", filepath.Join(v.cfg.StateDir, journalFile), v.holder.PID)
	default:
		v.file(ctx)
	}
}

// file reads the journal, checks it in a process of its own, and leaves it to a worker that starts meanwhile.
func (v *visit) file(ctx context.Context) {
	dir := v.cfg.StateDir
	path := filepath.Join(dir, journalFile)
	s, err := journal.Read(dir)
	if !errors.Is(err, journal.ErrBusy) && !errors.Is(err, journal.ErrMissing) && !errors.Is(err, journal.ErrNewer) {
		if damage := v.verify(ctx, path); damage != nil {
			err = damage
		}
	}
	switch {
	case errors.Is(err, journal.ErrBusy), errors.Is(err, errWorkerCame):
		v.skip(checkJournal, "%s: %v; run this again to have the worker asked", path, err)
	case errors.Is(err, journal.ErrMissing):
		v.fail(checkJournal, err, "restore it with its marker, "+restoring+"; only if there never was one, run: provctl init --state-dir "+dir, "%v", err)
	case errors.Is(err, journal.ErrNewer):
		v.fail(checkJournal, err, "install the provctl that wrote it, or a newer one", "%v", err)
	case errors.Is(err, receipt.ErrDamaged):
		v.fail(checkJournal, err, "restore the newest backup of journal and marker together; "+restoring, "%v", err)
	case err != nil:
		v.fail(checkJournal, nil, "run this as the worker's user or as root, and see "+checkState, "%v", err)
	default:
		v.sound(s, "sound, as its marker says")
	}
}

// verify runs the full check until a worker takes the lock.
func (v *visit) verify(ctx context.Context, path string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if h, err := v.o.Look(v.cfg.StateDir); err == nil && h.PID > 0 {
				cancel(errWorkerCame)
				return
			}
		}
	}()
	err := v.o.Verify(ctx, path)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// sound tells of a journal that can be read.
func (v *visit) sound(s journal.Snapshot, how string) {
	i := s.Info
	size := int64(0)
	if info, err := os.Stat(i.Path); err == nil {
		size = info.Size()
	}
	about := fmt.Sprintf("%s: journal %s of format %d, epoch %d, sequence %d, %s", i.Path, i.ID, i.Format, i.Epoch, i.Seq, how)
	if !i.Accepted.IsZero() {
		about += fmt.Sprintf("; accepted %s, without what was newer then (provctl audit)", stamp(i.Accepted))
	}
	switch older := i.Format < journal.Format; {
	case older && v.free < size+growth:
		v.fail(checkJournal, nil, fmt.Sprintf("free %d MiB on the file system of %s", (size+growth)/mib+1, v.cfg.StateDir),
			"%s; the next start brings it to format %d, for which there is no space", about, journal.Format)
	case older:
		v.warn(checkJournal, "keep a backup until the new version has proved itself", "%s; the next start brings it to format %d, and an older provctl then refuses it", about, journal.Format)
	case i.Created.Sub(v.o.Now()) > clockSteady:
		v.fail(checkClock, nil, setClock, "the journal was made at %s, and it is %s here", stamp(i.Created), stamp(v.o.Now()))
	default:
		v.ok(checkJournal, "%s", about)
	}
	if p := i.Pause; p != nil {
		v.warn(checkWorker, "provctl resume --state-dir "+v.cfg.StateDir, "paused since %s by %s: %s", stamp(p.At), p.By, p.Reason)
	}
	look := "provctl inspect --state-dir " + v.cfg.StateDir
	r := inspect.Build(inspect.View{Snapshot: s}, v.cfg.StateDir)
	if r.Blocked > 0 {
		v.warn(checkBlocked, look, "%d nodes have an effect of unknown outcome, and nothing is sent to them", r.Blocked)
		return
	}
	v.ok(checkBlocked, "none")
}
