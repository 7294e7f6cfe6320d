package reconcile_test

import (
	"testing"
	"time"

	"provctl/inspect/inspecttest"
	"provctl/journal"
	"provctl/receipt"
	"provctl/reconcile"
)

// TestOfflineDecisionExhaustsNobody: each life of the worker ends on one node, and an operator decides on others in between. Their
// decisions never put that node out; but what they find is counted, so that the worker itself can tell.
func TestOfflineDecisionExhaustsNobody(t *testing.T) {
	const deadly = "deadly.example.net"
	b := inspecttest.New(t, t.TempDir(), time.Now())
	blocked := b.Unknown("blocked.example.net", receipt.Configure, time.Hour)
	job := b.Claimed(deadly)
	_ = b.Close()

	life := func(do func(j *journal.Journal)) {
		t.Helper()
		j, err := journal.Open(b.Dir, journal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = j.RaiseEpoch(); err != nil {
			t.Fatal(err)
		}
		do(j)
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	claim := func(j *journal.Journal) {
		if _, err := j.Claim(t.Context(), job.ID); err != nil {
			t.Fatal(err)
		}
	}
	for round, decide := range []func() error{
		func() error { return decide(t, b, reconcile.Request{Receipt: string(blocked.ID)}) },
		func() error { return admit(t, b, "one.example.net") },
		func() error { return admit(t, b, "two.example.net") },
		func() error { return admit(t, b, "three.example.net") },
	} {
		if round > 0 {
			life(claim)
		}
		if err := decide(); err != nil {
			t.Fatal(err)
		}
		life(func(j *journal.Journal) {
			got, err := j.Job(job.ID)
			if err != nil || got.Status != receipt.Queued || got.Requeues != round+1 {
				t.Errorf("after %d decisions the job is %s, interrupted %d times: %v", round+1, got.Status, got.Requeues, err)
			}
			if n, err := j.Node(deadly); err != nil || n.Out != 0 || n.Job != job.ID {
				t.Errorf("after %d decisions the node is %+v, %v", round+1, n, err)
			}
		})
	}
	life(claim)
	life(func(j *journal.Journal) {
		got, err := j.Recover(t.Context(), journal.RecoverPolicy{MaxRequeues: 2})
		if err != nil || got.Count(journal.Exhausted) != 1 {
			t.Errorf("the worker's own start finds %+v, %v, want that the node is exhausted", got, err)
		}
	})
}

func admit(t *testing.T, b *inspecttest.Book, node string) error {
	t.Helper()
	_, err := reconcile.Admit(t.Context(), b.Dir, node, "", "because")
	return err
}
