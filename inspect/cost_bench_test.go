package inspect_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"provctl/inspect/inspecttest"
	"provctl/journal"
	"provctl/receipt"
)

// Of the journal that is inspected here.
const (
	costJobs    = 50_000
	costBlocked = 5_000
)

// Of the load: so many lanes with a receipt every so often each, begun and settled, in jobs of a few.
const (
	costLanes  = 4
	costEvery  = 20 * time.Millisecond
	costPerJob = 6
	costSpell  = 2 * time.Second // of one way to be inspected, before it is the next one's turn
)

// program builds the command line tool.
func program(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "provctl")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", path, "provctl/cmd/provctl").CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

// BenchmarkCommitWhileInspected tells how long a change takes to be durable, in µs, while nobody looks and while somebody runs inspect
// again and again in a process of its own: of everything or of one node, once a second or without a pause. Elsewhere is a copy of the
// journal, without a worker: it tells what a processor that somebody else uses costs. The ways take turns, so that what else the machine
// does is the same for all. One iteration is one turn of each.
func BenchmarkCommitWhileInspected(b *testing.B) {
	bin := program(b)
	book := inspecttest.New(b, b.TempDir(), time.Now())
	book.Many(costJobs-costBlocked, costBlocked)
	other := filepath.Join(b.TempDir(), "copy")
	if err := os.CopyFS(other, os.DirFS(book.Dir)); err != nil { // nothing is being committed
		b.Fatal(err)
	}
	book.Serve()
	l := newLoad(b, book)
	node := fmt.Sprintf("n%06d.example.net", costJobs-1)
	ways := []struct {
		name  string
		every time.Duration // 0: without a pause
		args  []string      // nil: nobody looks
	}{
		{name: "quiet"},
		{"elsewhere", 0, []string{"inspect", "--state-dir", other}},
		{"all-1/s", time.Second, []string{"inspect", "--state-dir", book.Dir}},
		{"all", 0, []string{"inspect", "--state-dir", book.Dir}},
		{"filter", 0, []string{"inspect", "--state-dir", book.Dir, "--node", node}},
		{"node", 0, []string{"inspect", "--state-dir", book.Dir, node}},
	}
	took := make([][]time.Duration, len(ways))
	looks := make([]int, len(ways))
	for b.Loop() {
		for i, w := range ways {
			l.take()
			looks[i] += look(b, w.every, bin, w.args)
			took[i] = append(took[i], l.take()...)
		}
	}
	for i, w := range ways {
		all := took[i]
		slices.Sort(all)
		if len(all) < 100 || w.args != nil && looks[i] == 0 {
			b.Fatalf("%s: %d changes and %d looks: the benchmark shows nothing", w.name, len(all), looks[i])
		}
		for _, p := range []int{50, 99} {
			b.ReportMetric(float64(all[len(all)*p/100].Microseconds()), fmt.Sprintf("%s-p%d-µs", w.name, p))
		}
		b.Logf("%s: %d changes, %d looks, the slowest change took %s", w.name, len(all), looks[i], all[len(all)-1])
	}
	b.ReportMetric(0, "ns/op")
}

// look inspects for a spell, and returns how often. The last inspection begins before the spell is over.
func look(b *testing.B, every time.Duration, bin string, args []string) (n int) {
	b.Helper()
	over := time.NewTimer(costSpell)
	defer over.Stop()
	next := time.NewTicker(max(every, 1))
	defer next.Stop()
	for until := time.Now().Add(costSpell); args != nil && time.Now().Before(until); {
		cmd := exec.CommandContext(b.Context(), bin, args...)
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != 3 { // something is blocked
			b.Fatalf("%v: %v, want exit code 3", args, err)
		}
		n++
		select {
		case <-next.C:
		case <-over.C:
			return n
		}
	}
	<-over.C
	return n
}

// load is a steady load of receipts on a journal, until the end of the benchmark.
type load struct {
	mu   sync.Mutex
	took []time.Duration
}

func newLoad(b *testing.B, book *inspecttest.Book) *load {
	l := &load{}
	ctx, stop := context.WithCancel(context.Background())
	var lanes sync.WaitGroup
	for n := range costLanes {
		lanes.Go(func() {
			for life := int64(1); ctx.Err() == nil; life++ {
				if err := l.job(ctx, book, n, life); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	b.Cleanup(func() {
		stop()
		lanes.Wait()
	})
	return l
}

// take returns how long each change took that ended since the last time.
func (l *load) take() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	took := l.took
	l.took = nil
	return took
}

func (l *load) timed(change func() error) error {
	at := time.Now()
	err := change()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, time.Since(at))
	return err
}

// job has a node's incarnation through one job. A job that was begun is ended, for the journal is closed later.
func (l *load) job(running context.Context, book *inspecttest.Book, lane int, life int64) error {
	ctx := context.WithoutCancel(running)
	admitted, err := book.Admit(ctx, []journal.Sighting{{Node: receipt.NodeID(fmt.Sprintf("lane-%d.example.net", lane)), At: time.Now()}}, 1)
	if err != nil {
		return err
	}
	job, err := book.Claim(ctx, admitted[0].Job.ID)
	if err != nil {
		return err
	}
	next := time.NewTicker(costEvery)
	defer next.Stop()
	for range costPerJob {
		<-next.C
		now := time.Now()
		var p *journal.Pending
		err := l.timed(func() (err error) {
			p, err = book.Begin(ctx, journal.Intent{
				Job: job.ID, Action: receipt.Gen25519, Incarnation: receipt.Incarnation{PID: 1, Start: life}, Request: "r", RequestTime: now,
				Horizon: receipt.HorizonOf(now, inspecttest.TTL, inspecttest.Skew), Digest: strings.Repeat("ab", 32),
			})
			return err
		})
		if err != nil {
			return err
		}
		err = l.timed(func() error {
			_, err := book.Settle(ctx, p, journal.Settlement{Event: receipt.ReplyApplied, Why: "the node answered with its key", By: "reply"})
			return err
		})
		if err != nil {
			return err
		}
	}
	_, err = book.Move(ctx, job.ID, journal.Next{Event: receipt.End, Result: receipt.Superseded})
	return err
}
