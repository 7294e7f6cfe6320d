package journaltest

import (
	"time"

	"provctl/journal"
	"provctl/receipt"
)

// testGuess: not-applied is not taken before the node has shown that it has done what it accepted, or was seen in another life; the other
// verdicts are. A reply that contradicts the verdict forbids the repeat.
func testGuess(b *Bench) {
	notApplied := func(node receipt.NodeID, want error, seen ...receipt.Evidence) receipt.Receipt {
		b.T.Helper()
		r := b.Unknown(node, receipt.Configure)
		b.Clock.Add(TTL + Skew + time.Second)
		for i := range seen {
			seen[i].At = b.Clock.Now()
		}
		r, err := b.Store.Note(b.Ctx(), r.ID, seen, nil)
		b.ok(err)
		_, err = b.decide(r, receipt.VerdictNotApplied)
		b.is(err, want)
		return r
	}
	notApplied("silent", journal.ErrMayStillRun)
	notApplied("idle", nil, b.SawLife(Life(1), 9, 0), b.SawIdle(Life(1)))
	notApplied("back", nil, b.SawLife(Life(2), 9, 0))
	for node, v := range map[receipt.NodeID]receipt.Verdict{"a": receipt.VerdictApplied, "b": receipt.VerdictAbandon} {
		r := notApplied(node, journal.ErrMayStillRun, b.SawLife(Life(1), 9, 0))
		_, err := b.decide(r, v)
		b.ok(err)
	}
	r := notApplied("overtaken", nil, b.SawLife(Life(1), 9, 0), b.SawIdle(Life(1)))
	_, err := b.Store.Note(b.Ctx(), r.ID, []receipt.Evidence{b.SawReply(receipt.ReplyApplied, "Wrote 3 lines")}, nil)
	b.ok(err)
	job, err := b.Store.Claim(b.Ctx(), b.Node("overtaken").Job)
	b.ok(err)
	_, err = b.Store.Begin(b.Ctx(), b.Intent(job.ID, receipt.Configure, Life(1)))
	b.is(err, receipt.ErrRepeat)
}
