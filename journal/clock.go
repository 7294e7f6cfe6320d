package journal

import (
	"fmt"
	"slices"
	"time"

	"provctl/receipt"
)

// clockStep is how far a clock is set back without anybody having to care: a hold lasts so much longer, no more.
const clockStep = time.Minute

// held reports whether a node is held at present. A hold is given when a job ends, at the latest, so a clock that stands before
// that end was set back since: the hold would last for longer than anybody asked for, and counts as over.
func held(n receipt.Node, now time.Time) bool {
	return n.HeldUntil.After(now) && !n.LastEnded.After(now.Add(clockStep))
}

// redate corrects an open receipt of an earlier term whose request lies in the future: it was signed while the clock was ahead,
// and its horizon would keep proofs and verdicts away until that time comes. Nothing keeps a request beyond the process that
// signed it, which ended before now, so one full span from now on is as good a horizon. What was observed by that clock was
// observed before now too; left as it is, it would pass for an observation from behind the new horizon. The note is empty if
// there was nothing to correct. The caller stores the receipt.
func (s *stage) redate(r *receipt.Receipt) (note string) {
	ahead := r.RequestTime.Sub(s.now)
	if ahead <= 0 {
		return ""
	}
	span := r.Horizon.Sub(r.RequestTime)
	r.RequestTime, r.Horizon = s.now, receipt.Horizon{Time: s.now.Add(span)}
	r.Evidence = slices.Clone(r.Evidence)
	for i := range r.Evidence {
		if r.Evidence[i].At.After(s.now) {
			r.Evidence[i].At = s.now
		}
	}
	return fmt.Sprintf("its request was dated %s ahead of the clock, which was set back: its horizon counts from this start", ahead.Round(time.Second))
}

// redateJob does the same for a queued job: it was seen now at the latest, and a delay is never longer than the given one.
func (s *stage) redateJob(job *receipt.Job, longest time.Duration) error {
	seen, notBefore := job.Seen, job.NotBefore
	if seen.After(s.now) {
		seen = s.now
	}
	if latest := s.now.Add(longest); notBefore.After(latest) {
		notBefore = latest
	}
	if seen.Equal(job.Seen) && notBefore.Equal(job.NotBefore) {
		return nil
	}
	job.Seen, job.NotBefore = seen, notBefore
	return save(&s.store, jobBucket, string(job.ID), *job)
}
