package choria

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"provctl/receipt"
)

// BenchmarkCall measures an effect from Prepare to its outcome on the shared connection, each lane with a node of its own. The
// nodes answer at once, so what is measured is the engine and the broker.
func BenchmarkCall(b *testing.B) {
	for _, lanes := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("lanes=%d", lanes), func(b *testing.B) {
			e := engine(b, broker(b), func(o *Options) { o.TTL, o.Log = 60*time.Second, slog.New(slog.NewTextHandler(io.Discard, nil)) })
			nodes := make([]*fakeNode, lanes)
			for i := range nodes {
				nodes[i] = lane(b, i)
			}
			var mu sync.Mutex
			var took []time.Duration
			work := make(chan struct{})
			var wg sync.WaitGroup
			b.ResetTimer()
			for _, n := range nodes {
				wg.Go(func() {
					for range work {
						began := time.Now()
						if o, _ := restart(b, e, n.node()); o.Event != receipt.ReplyApplied {
							b.Errorf("outcome %s (%s)", o.Event, o.Why)
						}
						mu.Lock()
						took = append(took, time.Since(began))
						mu.Unlock()
					}
				})
			}
			for range b.N {
				work <- struct{}{}
			}
			close(work)
			wg.Wait()
			b.StopTimer()
			slices.Sort(took)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

func lane(b *testing.B, i int) *fakeNode {
	n := &fakeNode{t: b, id: fmt.Sprintf("lane%d.%s.example.net", i, strings.ReplaceAll(b.Name(), "/", "-")), on: func(r fakeRequest) { r.answer(0, "OK", restarting) }}
	n.id = strings.ReplaceAll(n.id, "=", "-")
	n.nc = dial(b, broker(b), n.id)
	if _, err := n.nc.Subscribe("provisioning.node."+n.id, n.handle); err != nil {
		b.Fatal(err)
	}
	if err := n.nc.Flush(); err != nil {
		b.Fatal(err)
	}
	return n
}
