package journal_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

// BenchmarkCommitDuringBackup has eight lanes work on a journal of some 60 MB, alone and while one backup after the other is made and read. It
// reports how long commits took, in milliseconds.
func BenchmarkCommitDuringBackup(b *testing.B) {
	for _, backups := range []bool{false, true} {
		b.Run(fmt.Sprintf("backups=%v", backups), func(b *testing.B) {
			var took []time.Duration // by the committer alone
			j := opened(b, b.TempDir(), journal.Options{Observe: func(c journal.CommitStats) { took = append(took, c.Took) }})
			for i := range 12 {
				seen := make([]journal.Sighting, 5000)
				for k := range seen {
					seen[k].Node = receipt.NodeID(fmt.Sprintf("node-%d-%d.example.net", i, k))
				}
				_, err := j.Admit(b.Context(), seen, 100000)
				must(b, err)
			}
			ctx, stop := context.WithCancel(b.Context())
			var made, size int64
			var backing, lanes sync.WaitGroup
			if backups {
				backing.Go(func() {
					for ctx.Err() == nil {
						c, err := j.Backup(b.Context())
						must(b, err)
						n, err := io.Copy(io.Discard, c)
						must(b, err)
						must(b, c.Close())
						made, size = made+1, n
					}
				})
			}
			from := j.Stats().Commits
			b.ResetTimer()
			for lane := range 8 {
				lanes.Go(func() { work(b, j, lane, (b.N+7-lane)/8) })
			}
			lanes.Wait()
			b.StopTimer()
			stop()
			backing.Wait()
			must(b, j.Close())
			took = took[int(from):]
			slices.Sort(took)
			at := func(share float64) float64 {
				return float64(took[int(share*float64(len(took)-1))].Microseconds()) / 1000
			}
			b.ReportMetric(at(0.5), "p50-ms")
			b.ReportMetric(at(0.99), "p99-ms")
			b.ReportMetric(at(1), "max-ms")
			if backups {
				b.ReportMetric(float64(made), "backups")
				b.ReportMetric(float64(size)/(1<<20), "MiB")
			}
		})
	}
}
