package sequence_test

import (
	"testing"
	"time"

	"provctl/journal"
	"provctl/receipt"
	"provctl/sequence"
)

// TestFinish: the pass after the verdict finish sends the restart alone, and what the node says to it settles the configure.
func TestFinish(t *testing.T) {
	keeps := "Configuration /etc/choria/server.conf" + receipt.RestartKeepsProvisioning
	for what, tc := range map[string]struct {
		restart sequence.Outcome
		config  receipt.Status
		job     receipt.JobStatus
		result  receipt.Result
		then    string // what the next pass sends
	}{
		"accepted":          {sequence.Outcome{}, receipt.Applied, receipt.Ended, receipt.Provisioned, ""},
		"still provisions":  {sequence.Outcome{Reply: &receipt.Reply{Code: 1, Text: keeps}}, receipt.NotApplied, receipt.Queued, 0, "configure restart"},
		"unparsable":        {sequence.Outcome{Reply: &receipt.Reply{Code: 1, Text: "Configuration x" + receipt.RestartUnparsable + ": line 1"}}, receipt.Failed, receipt.Queued, 0, "configure restart"},
		"refused otherwise": {sequence.Outcome{Reply: &receipt.Reply{Code: 1, Text: "Cannot restart a server that is not in provisioning mode or with no token set"}}, receipt.Unknown, receipt.Blocked, 0, ""},
		"failed":            {sequence.Outcome{Reply: &receipt.Reply{Code: 3, Text: "something new"}}, receipt.Unknown, receipt.Blocked, 0, ""},
		"not sent":          {sequence.Outcome{Event: receipt.NeverSent, Why: "no responders"}, receipt.Finishing, receipt.Queued, 0, "restart"},
		"unknown":           {sequence.Outcome{Event: receipt.Lost, Why: "no reply"}, receipt.Finishing, receipt.Blocked, 0, ""},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			b.age = 2 * time.Minute // every horizon has passed
			b.publish = func(p *journal.Pending) (sequence.Outcome, error) {
				if p.Receipt().Action == receipt.Configure {
					return sequence.Outcome{Event: receipt.Lost, Why: "no reply"}, nil
				}
				return sequence.Outcome{}, nil
			}
			job, err := b.pass()
			if err != nil || job.Status != receipt.Blocked {
				t.Fatalf("job is %s, %v", job.Status, err)
			}
			open, err := b.j.OpenReceipts()
			if err != nil || len(open) != 1 || open[0].Action != receipt.Configure {
				t.Fatalf("open: %+v, %v", open, err)
			}
			config := open[0]
			if _, err := b.j.Decide(t.Context(), journal.Decision{Receipt: config.ID, Seen: config.Version, Verdict: receipt.VerdictFinish, By: "me", Reason: "find out"}); err != nil {
				t.Fatal(err)
			}
			b.publish = func(*journal.Pending) (sequence.Outcome, error) { return tc.restart, nil }
			if job, err = b.pass(); err != nil || job.Status != tc.job || job.Result != tc.result {
				t.Errorf("job is %s, %s (%s), %v", job.Status, job.Result, job.Why, err)
			}
			if got := b.effects(); got != "restart" {
				t.Errorf("published %q", got)
			}
			if r, err := b.j.Receipt(config.ID); err != nil || r.Status != tc.config {
				t.Errorf("the configure is %s (%s), %v", r.Status, r.Why, err)
			}
			if tc.then == "" {
				return
			}
			b.publish = nil
			if job, err = b.pass(); err != nil || job.Result != receipt.Provisioned || b.effects() != tc.then {
				t.Errorf("then %q was published, job is %s (%s), %v", b.effects(), job.Status, job.Why, err)
			}
		})
	}
}
