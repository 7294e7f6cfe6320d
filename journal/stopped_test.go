package journal_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"provctl/journal"
	"provctl/receipt"
)

// TestStoppedIsTold: a write that nobody waits for can be the one that fails; whoever runs on the journal has to hear of it.
func TestStoppedIsTold(t *testing.T) {
	t.Parallel()
	j := opened(t, t.TempDir(), journal.Options{})
	must(t, admit(t, j, "node"))
	select {
	case <-j.Stopped():
		t.Fatal("it is stopped before anything failed")
	default:
	}
	job, err := j.AdmitByHand(t.Context(), "node", "me", "x")
	must(t, err)
	if job, err = j.Claim(t.Context(), job.ID); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	p, err := j.Begin(t.Context(), journal.Intent{
		Job: job.ID, Action: receipt.Configure, Incarnation: receipt.Incarnation{PID: 1, Start: 1}, Request: "R", RequestTime: now,
		Horizon: receipt.HorizonOf(now, time.Minute, time.Second), Digest: strings.Repeat("ab", 32),
	})
	must(t, err)
	j.SetFault(func(string) error { return errors.New("trouble") })
	j.NoteSoon(p.Receipt().ID, receipt.Evidence{Kind: receipt.SawEvent, Source: "event", Event: &receipt.EventSeen{Type: "provisioned"}})
	<-j.Stopped()
	if err := j.Failed(); !errors.Is(err, journal.ErrStopped) {
		t.Errorf("Failed gives %v", err)
	}
	_ = j.Close()
}
