package choria

import (
	"context"
	"errors"
	"time"
)

const (
	campaignFirst   = 200 * time.Millisecond // after an attempt without an answer
	campaignLongest = 5 * time.Second
	farewell        = time.Second // for telling the others that we stop
)

// Run campaigns until the context ends, and gives the key up then, so that a standby continues at once. It never returns earlier:
// what fails is logged, the first time a text occurs and then less and less often, and tried again. One Run at a time.
func (e *Election) Run(ctx context.Context) {
	if !e.start() {
		<-ctx.Done()
		return
	}
	defer e.stop()
	next, try := e.opt.Now(), 0
	for ctx.Err() == nil {
		var note released
		select {
		case note = <-e.notes:
		default:
		}
		e.tell() // a lapse that the attempt is about to mend
		if now := e.opt.Now(); note.Revision != 0 || !now.Before(next) {
			err := e.vote(ctx, note.Revision)
			if ctx.Err() != nil {
				break
			}
			e.report(err)
			if try++; err == nil {
				try = 0
			}
			next = e.opt.Now().Add(e.until(err, try))
		}
		e.tell()
		e.sleep(ctx, next)
	}
}

// start reports whether this Run campaigns.
func (e *Election) start() bool {
	if e == nil || e.opt.Now == nil {
		return false // made by nobody: there is nothing to log to
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.broken
	if err == nil && e.running {
		err = errors.New("it runs already")
	}
	if err != nil {
		e.opt.Log.Error("the election cannot be held, so this worker stands by", "error", clean(err.Error()))
		return false
	}
	e.running, e.since = true, e.opt.Now()
	return true
}

// stop ends the leadership first and tells the others then.
func (e *Election) stop() {
	e.mu.Lock()
	revision := e.held.revision
	e.held, e.taken, e.err, e.leaving = lease{}, false, nil, true
	e.mu.Unlock()
	e.tell()
	e.unwatch() // the note is for others
	if revision != 0 {
		e.giveUp(revision)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running, e.leaving = false, false
}

// sleep waits until the next attempt or change of role, a note or the end.
func (e *Election) sleep(ctx context.Context, next time.Time) {
	e.mu.Lock()
	now := e.opt.Now()
	d := next.Sub(now)
	switch e.roleAt(now) {
	case Waiting:
		d = min(d, e.held.ready.Sub(now), e.held.length-elapsed(e.held.from, now))
	case Leading:
		d = min(d, e.held.length-elapsed(e.held.from, now))
	}
	e.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case n := <-e.notes:
		select {
		case e.notes <- n:
		default: // a newer one came
		}
	case <-ctx.Done():
	}
}

// until is the wait before the next attempt: soon after a failure, a third of the lease for a leader, and for a candidate a
// twelfth of the key's life at most, at random, so that candidates do not stay in step.
func (e *Election) until(err error, try int) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		longest := campaignLongest
		if e.ttl > 0 {
			longest = min(longest, e.ttl/12)
		}
		return e.opt.Engine.jitter(min(campaignFirst, longest), longest, try-1)
	}
	now := e.opt.Now()
	if e.held.revision != 0 {
		return e.held.from.Add(e.held.length / 3).Sub(now)
	}
	if !e.taken {
		return 0 // just lost, to nobody
	}
	return e.opt.Engine.jitter(e.ttl/12, e.ttl/12, 0)
}

// tell passes the role on if it changed.
func (e *Election) tell() {
	e.mu.Lock()
	now := e.opt.Now()
	before, role, ready := e.role, e.roleAt(now), e.held.ready
	if role == before {
		e.mu.Unlock()
		return
	}
	e.role, e.since = role, now
	why, leaving := e.whyStandby(now), e.leaving
	e.mu.Unlock()
	switch {
	case role == Leading:
		e.opt.Log.Info("this worker leads now")
	case role == Waiting:
		e.opt.Log.Info("won the election; waiting for the former leader's last requests", "until", stamp(ready))
	case leaving:
		e.opt.Log.Info("this worker leaves the leadership to others", "was", before)
	default:
		e.opt.Log.Warn("this worker does not lead any more", "was", before, "why", clean(why.Error()))
	}
	e.opt.Changed(role)
}

// report logs a failure the first time, and then at each doubling of its count.
func (e *Election) report(err error) {
	e.mu.Lock()
	e.err = err
	e.mu.Unlock()
	if err == nil {
		if len(e.failures) > 0 {
			e.opt.Log.Info("the election works again")
			clear(e.failures)
		}
		return
	}
	text := clean(err.Error())
	if len(e.failures) > 32 {
		clear(e.failures)
	}
	e.failures[text]++
	if n := e.failures[text]; n&(n-1) == 0 {
		e.opt.Log.Warn("the election failed, trying again", "error", text, "times", n)
	}
}
