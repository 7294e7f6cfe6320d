package journal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"provctl/receipt"
)

// byVerdict is what Receipt.Settled says of a receipt that an operator settled.
const byVerdict = "verdict"

// Decide records an operator's verdict on an unknown receipt, settles it, revokes its token and moves its job, in one
// transaction. It is a compare-and-set: receipt.ErrStale if the receipt is not at the version that was seen or has an outcome
// already; ErrInFlight while the worker waits for it; *BeforeHorizonError while its request can still be accepted; ErrMayStillRun for
// not-applied while it may wait in its node; ErrContradicted if evidence says otherwise and Contradict is not set. A former verdict is
// superseded while nothing later was begun for the node: both stay on record. Finish is for a configure alone: its job goes on with the
// restart, and what the node says to that settles the configure. Durable when it returns without an error.
func (j *Journal) Decide(ctx context.Context, d Decision) (receipt.Receipt, error) {
	if d.Verdict.Event() == 0 || strings.TrimSpace(d.Reason) == "" || strings.TrimSpace(d.By) == "" {
		return receipt.Receipt{}, fmt.Errorf("verdict on receipt %s: %w: it needs a verdict (applied, not-applied, abandon, finish), a name and a reason", d.Receipt, receipt.ErrInvalid)
	}
	var r receipt.Receipt
	err := j.do(ctx, func(s *stage) (err error) {
		r, err = s.decide(d)
		return err
	})
	if err != nil {
		return receipt.Receipt{}, fmt.Errorf("verdict %s on receipt %s: %w", d.Verdict, d.Receipt, err)
	}
	return r, nil
}

func (s *stage) decide(d Decision) (receipt.Receipt, error) {
	r, err := s.receipt(d.Receipt)
	if err != nil {
		return r, err
	}
	saw := r
	if r.Status != receipt.Pending && r.Version != d.Seen {
		return r, fmt.Errorf("%w: version %d was seen, it is %s at version %d: look again", receipt.ErrStale, d.Seen, r.Status, r.Version)
	}
	superseded := receipt.Seq(0)
	if !r.Status.Open() {
		if superseded, err = s.withdraw(&r, d.Verdict); err != nil {
			return r, err
		}
	}
	contradicts, err := d.allowed(r, s.now)
	if err != nil {
		return r, err
	}
	seq := s.next()
	r.Decisions = append(r.Decisions[:len(r.Decisions):len(r.Decisions)], receipt.Decision{
		Verdict: d.Verdict, By: clip(d.By), Reason: clip(d.Reason), At: s.now, Seq: seq, Seen: d.Seen,
		Evidence: clip(d.Evidence), Contradicts: clip(contradicts), Supersedes: superseded,
	})
	s.refer(tombBucket, string(r.Token), string(r.ID))
	why := fmt.Sprintf("%s by %s: %s", d.Verdict, d.By, d.Reason)
	if superseded == 0 {
		s.meta.Tally.Verdicts++
		err = s.conclude(&r, d.Verdict, why)
	} else {
		err = s.reconclude(&r, d.Verdict, why)
	}
	act := Act{
		Seq: seq, Did: DidVerdict, By: d.By, Reason: d.Reason, Node: r.Node, Job: r.Job, Receipt: r.ID, Action: r.Action, Verdict: d.Verdict,
		Seen: d.Seen, Evidence: d.Evidence, Contradicts: contradicts, Supersedes: superseded, Result: fmt.Sprintf("%s, was %s", r.Status, saw.Status),
	}
	for _, e := range saw.Evidence {
		act.Saw = append(act.Saw, fmt.Sprintf("%s %s: %s", e.At.UTC().Format(time.RFC3339), e.Source, e))
	}
	return r, errors.Join(err, s.enter(act))
}

// allowed refuses a verdict that comes too early, or that evidence contradicts. It returns what evidence says otherwise, if the operator
// insists.
func (d Decision) allowed(r receipt.Receipt, now time.Time) (contradicts string, err error) {
	if d.Verdict == receipt.VerdictFinish && r.Action != receipt.Configure {
		return "", fmt.Errorf("%w: it is a %s: only a configure can be found out about by a restart", receipt.ErrInvalid, r.Action)
	}
	switch {
	case r.Status == receipt.Pending:
		return "", fmt.Errorf("%w: the worker waits for %s on %s until %s at most", ErrInFlight, r.Action, r.Node, r.Horizon.UTC().Format("15:04:05 MST"))
	case !r.Horizon.Passed(now):
		return "", &BeforeHorizonError{Receipt: r.ID, Left: r.Horizon.Left(now)}
	case d.Verdict == receipt.VerdictNotApplied && r.MayStillRun():
		return "", fmt.Errorf("%w: %s has not shown since %s that it has done what it accepted; the worker asks it every 15 s, so let one run until it has; if it never answers, restart its server, or abandon",
			ErrMayStillRun, r.Node, r.Horizon.UTC().Format("15:04:05 MST"))
	}
	contradicts = receipt.Contradiction(r, d.Verdict, now)
	if contradicts != "" && !d.Contradict {
		return "", fmt.Errorf("%w: %s; look again, or insist with --contradict-evidence, which is put on record", ErrContradicted, contradicts)
	}
	return contradicts, nil
}

// conclude settles a blocked receipt by a verdict and moves its job.
func (s *stage) conclude(r *receipt.Receipt, v receipt.Verdict, why string) error {
	next := s.afterVerdict(r.Action, v)
	if v != receipt.VerdictFinish {
		return s.resolve(r, v.Event(), why, byVerdict, next)
	}
	job, err := need[receipt.Job](&s.store, jobBucket, string(r.Job), "receipt "+string(r.ID))
	if err != nil {
		return err
	}
	job.Finish = r.ID
	if err := s.saveJob(&job); err != nil {
		return err
	}
	return s.resolve(r, v.Event(), why, byVerdict, next)
}

func (s *stage) afterVerdict(a receipt.Action, v receipt.Verdict) Next {
	switch v {
	case receipt.VerdictApplied:
		return s.afterApplied(a)
	case receipt.VerdictAbandon:
		return Next{Event: receipt.End, Result: receipt.GivenUp}
	default:
		return Next{Event: receipt.Resume}
	}
}

// withdraw takes a receipt's last verdict back: it is unknown again, within this change only. It returns that verdict's number. Only the
// last receipt of a node that has not come back since qualifies, and only while nobody works on the node.
func (s *stage) withdraw(r *receipt.Receipt, by receipt.Verdict) (receipt.Seq, error) {
	last := len(r.Decisions) - 1
	if r.Settled != byVerdict || last < 0 || r.Decisions[last].Verdict == by {
		return 0, fmt.Errorf("%w: it is %s already, by %s", receipt.ErrStale, r.Status, r.Settled)
	}
	n, err := s.nodeOf(r.Node, "receipt "+string(r.ID))
	if err != nil {
		return 0, err
	}
	if n.Open != "" || len(n.Receipts) == 0 || n.Receipts[len(n.Receipts)-1] != r.ID {
		return 0, fmt.Errorf("%w: it is %s by verdict, and later effects of %s build on that", receipt.ErrStale, r.Status, r.Node)
	}
	if n.Job != "" {
		job, err := need[receipt.Job](&s.store, jobBucket, string(n.Job), "node "+string(n.ID))
		if err != nil {
			return 0, err
		}
		if job.Status == receipt.Claimed {
			return 0, fmt.Errorf("%w: the worker is at work on %s by the former verdict; 'provctl pause' and try again when it has ended", ErrInFlight, r.Node)
		}
		if job.Finish == r.ID {
			job.Finish = ""
			if err := s.saveJob(&job); err != nil {
				return 0, err
			}
		}
	}
	if err := s.unfile(*r); err != nil {
		return 0, err
	}
	to, err := r.Status.Apply(receipt.Withdrawn)
	if err != nil {
		return 0, fmt.Errorf("receipt %s of %s: %w", r.ID, r.Node, err)
	}
	r.Status = to
	return r.Decisions[last].Seq, nil
}

// reconclude settles a receipt whose former verdict was withdrawn. What that verdict did to the job is made right by the job that the node
// has now, or by a new one.
func (s *stage) reconclude(r *receipt.Receipt, v receipt.Verdict, why string) error {
	n, err := s.nodeOf(r.Node, "receipt "+string(r.ID))
	if err != nil {
		return err
	}
	if err := s.settle(r, &n, v.Event(), why, byVerdict); err != nil {
		return err
	}
	if n.Out == receipt.GivenUp {
		n.Out, n.OutOf, n.HeldWhy = 0, receipt.Incarnation{}, ""
	}
	next := s.afterVerdict(r.Action, v)
	next.Why = why
	switch {
	case v == receipt.VerdictFinish && n.Job != r.Job:
		return fmt.Errorf("%w: its job has ended by the former verdict, and a restart could settle it no longer: give applied or not-applied", receipt.ErrStale)
	case n.Job != "" && next.Event == receipt.End:
		job, err := need[receipt.Job](&s.store, jobBucket, string(n.Job), "node "+string(n.ID))
		if err != nil {
			return err
		}
		return s.step(&job, &n, receipt.End, next)
	case next.Event == receipt.End:
		if next.Result.StaysOut() {
			n.Out, n.OutOf, n.HeldWhy = next.Result, r.Incarnation, clip(why)
		}
		return s.saveNode(&n)
	default:
		return s.goOnWith(r, &n, v, why)
	}
}

// goOnWith has the node's job, or a new one, go on after a verdict.
func (s *stage) goOnWith(r *receipt.Receipt, n *receipt.Node, v receipt.Verdict, why string) (err error) {
	var job receipt.Job
	n.HeldUntil, n.HeldWhy = time.Time{}, ""
	if n.Job == "" {
		if job, *n, err = s.newJob(*n, "operator", clip(why), s.now); err != nil {
			return err
		}
	} else if job, err = need[receipt.Job](&s.store, jobBucket, string(n.Job), "node "+string(n.ID)); err != nil {
		return err
	}
	job.Why, job.NotBefore, job.Seen = clip(why), time.Time{}, s.now
	job.Incarnation = r.Incarnation // what was decided is of that life alone: if the node has another by now, the job ends
	if v == receipt.VerdictFinish {
		job.Finish = r.ID
	}
	return errors.Join(s.saveJob(&job), s.saveNode(n))
}

// tell settles the configure that a job's restart was to find out about, once something is known of it. The last word is what the job's
// next step says: a restart that took effect proves the configure, an incarnation that is gone makes it moot. A job that would end without
// having learned anything is blocked by the configure again, which is as unknown as before.
func (s *stage) tell(job *receipt.Job, n *receipt.Node, event receipt.JobEvent, next Next) (receipt.JobEvent, Next, error) {
	told := next.Told
	switch {
	case told != 0:
	case event != receipt.End:
		return event, next, nil
	case next.Result == receipt.Provisioned:
		told = receipt.ProvedApplied
	case next.Result == receipt.Superseded, next.Result == receipt.GivenUp:
		told = receipt.ProvedMoot
	default:
		told = receipt.Withdrawn
	}
	r, err := need[receipt.Receipt](&s.store, recBucket, string(job.Finish), "job "+string(job.ID))
	if err != nil {
		return event, next, err
	}
	h, err := s.history(r.Node, r.Incarnation)
	if err != nil {
		return event, next, err
	}
	told = h.Found(told)
	if err := s.unfile(r); err != nil {
		return event, next, err
	}
	why := "its restart was to find out: " + next.Why
	if told != receipt.Withdrawn {
		job.Finish = ""
		return event, next, s.settle(&r, n, told, why, "evidence: restart")
	}
	if r.Status, err = r.Status.Apply(told); err != nil {
		return event, next, fmt.Errorf("receipt %s of %s: %w", r.ID, r.Node, err)
	}
	r.Why, r.Settled, r.EndedAt = clip("nothing was found out: "+next.Why), "", time.Time{}
	s.moves.Unknown++
	job.Finish, n.Open = "", r.ID
	return receipt.Block, Next{Why: r.Why}, s.saveReceipt(&r)
}

// Release ends a node's hold, or the wait of its queued job, and forgives nothing. Whether it is taken then is for the next sighting.
// ErrNotFound if nothing is known of the node, ErrNotHeld if it is not held. Durable when it returns without an error.
func (j *Journal) Release(ctx context.Context, id receipt.NodeID, by, reason string) (receipt.Node, error) {
	if strings.TrimSpace(reason) == "" || strings.TrimSpace(by) == "" {
		return receipt.Node{}, fmt.Errorf("release %s: %w: a name and a reason are needed", id, receipt.ErrInvalid)
	}
	var n receipt.Node
	err := j.do(ctx, func(s *stage) (err error) {
		if n, err = load[receipt.Node](&s.store, nodeBucket, string(id)); errors.Is(err, ErrNotFound) {
			return fmt.Errorf("%w: 'provctl nodes' lists what is known", err)
		} else if err != nil {
			return err
		}
		waits := false
		if n.Job != "" {
			job, err := need[receipt.Job](&s.store, jobBucket, string(n.Job), "node "+string(id))
			if err != nil {
				return err
			}
			if waits = job.Status == receipt.Queued && job.NotBefore.After(s.now); waits {
				job.NotBefore = time.Time{}
				s.next()
				err = s.saveJob(&job)
			}
			if err != nil {
				return err
			}
		}
		switch {
		case n.Out != 0:
			return fmt.Errorf("%w: it stays out as %s; 'provctl admit %s' lets it in", ErrNotHeld, n.Out, id)
		case !held(n, s.now) && !waits:
			return fmt.Errorf("%w: 'provctl nodes --node %s' shows what it is", ErrNotHeld, id)
		}
		s.next()
		was := n.HeldWhy
		n.HeldUntil, n.HeldWhy = time.Time{}, ""
		return errors.Join(s.saveNode(&n), s.enter(Act{Did: DidRelease, By: by, Reason: reason, Node: id, Result: "was held: " + was}))
	})
	if err != nil {
		return receipt.Node{}, fmt.Errorf("release %s: %w", id, err)
	}
	return n, nil
}
