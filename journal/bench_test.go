package journal_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"provctl/journal"
	"provctl/journal/journaltest"
	"provctl/receipt"
)

// BenchmarkCommit has each lane begin and settle effects one after the other: two durable changes per iteration.
func BenchmarkCommit(b *testing.B) {
	for _, lanes := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("lanes=%d", lanes), func(b *testing.B) {
			j := opened(b, b.TempDir(), journal.Options{})
			before := j.Stats()
			b.ResetTimer()
			start := time.Now()
			var all sync.WaitGroup
			for lane := range lanes {
				all.Go(func() { work(b, j, lane, (b.N+lanes-1-lane)/lanes) })
			}
			all.Wait()
			took := time.Since(start).Seconds()
			b.StopTimer()
			s := j.Stats()
			commits, ops := float64(s.Commits-before.Commits), float64(s.Operations-before.Operations)
			b.ReportMetric(commits/took, "commits/s")
			b.ReportMetric(ops/took, "changes/s")
			b.ReportMetric(ops/commits, "changes/commit")
		})
	}
}

func work(b *testing.B, j *journal.Journal, lane, n int) {
	const perJob = 6 // about a cycle's effects
	node := receipt.NodeID(fmt.Sprintf("lane-%d.example.net", lane))
	for i := 0; i < n; {
		a, err := j.Admit(b.Context(), []journal.Sighting{{Node: node}}, 1)
		must(b, err)
		job, err := j.Claim(b.Context(), a[0].Job.ID)
		must(b, err)
		for k := 0; k < perJob && i < n; k, i = k+1, i+1 {
			now := time.Now()
			p, err := j.Begin(b.Context(), journal.Intent{
				Job: job.ID, Action: receipt.Gen25519, Incarnation: journaltest.Life(int64(i / perJob)), Request: "r", RequestTime: now,
				Horizon: receipt.HorizonOf(now, time.Minute, 0), Digest: strings.Repeat("ab", 32),
			})
			must(b, err)
			_, err = j.Settle(b.Context(), p, journal.Settlement{Event: receipt.ReplyApplied, Why: "the node answered with its key", By: "reply"})
			must(b, err)
		}
		_, err = j.Move(b.Context(), job.ID, journal.Next{Event: receipt.End, Result: receipt.Superseded})
		must(b, err)
	}
}
