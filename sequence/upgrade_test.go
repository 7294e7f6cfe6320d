package sequence_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"provctl/internal/agent"
	"provctl/receipt"
	"provctl/sequence"
)

const wanting = `{` + configuration + `,"upgrade":"1.2.3"}`

func upgrading(t *testing.T) *bench {
	b := newBench(t)
	b.flow = sequence.Flow{Upgrades: true, Repository: "https://repo.example.net"}
	b.stock, b.helper = `{"version":"1.2.2","upgradable":true}`, wanting
	return b
}

// TestUpgradeOutcomes is the table of what an upgrade's outcome means for the pass.
func TestUpgradeOutcomes(t *testing.T) {
	const through, rolledBack = "release_update configure restart", "Update to version 1.2.3 failed, release rolled back: odd"
	broken := "Update to version 1.2.3 failed, rollback also failed, server in broken state: odd"
	optional := func(change func(*bench)) func(*bench) {
		return func(b *bench) {
			b.flow.UpgradeOptional = true
			change(b)
		}
	}
	fails := func(text string) func(*bench) {
		return func(b *bench) { b.publish = failing(receipt.ReleaseUpdate, text) }
	}
	stock := func(text string) func(*bench) { return func(b *bench) { b.stock = text } }
	for _, c := range []struct {
		name    string
		change  func(*bench)
		effects string
		result  receipt.Result
		held    bool
	}{
		{"equal", stock(`{"version":"1.2.3","upgradable":true}`), "configure restart", receipt.Provisioned, true},
		{"equal to the package", stock(`{"version":"1.2.3-1","upgradable":false}`), "configure restart", receipt.Provisioned, true},
		{"feature off", func(b *bench) { b.flow.Upgrades = false }, "configure restart", receipt.Provisioned, true},
		{"nothing wanted", func(b *bench) { b.helper = `{` + configuration + `}` }, "configure restart", receipt.Provisioned, true},
		{"ran", func(*bench) {}, "release_update", receipt.Upgraded, false},
		{"ran to an older one", stock(`{"version":"2.0","upgradable":true}`), "release_update", receipt.Upgraded, false},
		{"failed", fails(rolledBack), "release_update", receipt.FailedJob, true},
		{"refused", fails("Version updates is not enabled in the configuration"), "release_update", receipt.FailedJob, true},
		{"failed, optional", optional(fails(rolledBack)), through, receipt.Provisioned, true},
		{"refused, optional", optional(fails("Version updates is not enabled in the configuration")), through, receipt.Provisioned, true},
		{"broken", fails(broken), "release_update", receipt.Exhausted, false},
		{"broken, optional", optional(fails(broken)), "release_update", receipt.Exhausted, false},
		{"no version", stock(`{"upgradable":true}`), "", receipt.FailedJob, true},
		{"no version, optional", optional(stock(`{"upgradable":true}`)), "configure restart", receipt.Provisioned, true},
		{"not upgradable", stock(`{"version":"1.2.2"}`), "", receipt.FailedJob, true},
		{"not upgradable, optional", optional(stock(`{"version":"1.2.2"}`)), "configure restart", receipt.Provisioned, true},
		{"inventory of another shape", stock(`{"version":7}`), "", receipt.FailedJob, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := upgrading(t)
			c.change(b)
			job, err := b.pass()
			if err != nil || job.Status != receipt.Ended || job.Result != c.result || b.effects() != c.effects {
				t.Fatalf("job %s %s (%s), %v, effects %q", job.Status, job.Result, job.Why, err, b.effects())
			}
			n, err := b.j.Node(node)
			if err != nil || n.HeldUntil.After(time.Now()) != c.held {
				t.Errorf("held until %s, %v", n.HeldUntil, err)
			}
			if in, ok := b.sent[receipt.ReleaseUpdate].(agent.ReleaseUpdate); ok && (in.Version != "1.2.3" || in.Repository != "https://repo.example.net") {
				t.Errorf("asked for %+v", in)
			}
		})
	}
}

// TestUpgradedNodeIsLeftAlone: an incarnation whose server was replaced gets nothing more; the next one is configured.
func TestUpgradedNodeIsLeftAlone(t *testing.T) {
	b := upgrading(t)
	if job, err := b.pass(); err != nil || job.Result != receipt.Upgraded {
		t.Fatalf("job %+v, %v", job, err)
	}
	job, err := b.pass()
	if err != nil || job.Status != receipt.Queued || b.effects() != "" || !job.NotBefore.After(time.Now()) {
		t.Fatalf("while it restarts: job %+v, %v, effects %q", job, err, b.effects())
	}
	b.stats = func(int) (receipt.Incarnation, error) { return other, nil }
	b.stock = `{"version":"1.2.3","upgradable":true}`
	if job, err = b.pass(); err != nil || job.Result != receipt.Provisioned || b.effects() != "configure restart" {
		t.Fatalf("after it: job %+v, %v, effects %q", job, err, b.effects())
	}
}

// TestUpgradedNodeThatDoesNotAnswerYet is asked again: its restart may swallow a question, or leave nobody there for a while. Any
// other node that does not answer is held, and one that is away ends as left.
func TestUpgradedNodeThatDoesNotAnswerYet(t *testing.T) {
	for _, c := range []struct {
		err       error
		otherwise receipt.Result
	}{{errors.New("no reply in time"), receipt.FailedJob}, {sequence.ErrAbsent, receipt.Left}} {
		b := upgrading(t)
		away := func(int) (receipt.Incarnation, error) { return receipt.Incarnation{}, c.err }
		b.stats = away
		if job, err := b.pass(); err != nil || job.Result != c.otherwise {
			t.Errorf("%v, never upgraded: job %+v, %v", c.err, job, err)
		}
		b.stats = nil
		if job, err := b.pass(); err != nil || job.Result != receipt.Upgraded {
			t.Fatalf("job %+v, %v", job, err)
		}
		b.stats = away
		job, err := b.pass()
		if err != nil || job.Status != receipt.Queued || b.effects() != "" || !job.NotBefore.After(time.Now()) {
			t.Errorf("%v, upgraded: job %+v, %v, effects %q", c.err, job, err, b.effects())
		}
	}
}

// TestUpgradeThatChangesNothing: three upgrades, each followed by a restart into the old version, are enough.
func TestUpgradeThatChangesNothing(t *testing.T) {
	for _, optional := range []bool{false, true} {
		b := upgrading(t)
		b.flow.UpgradeOptional, b.sighted = optional, true
		lives := 0
		b.stats = func(int) (receipt.Incarnation, error) {
			return receipt.Incarnation{PID: 7, Start: life.Start + int64(100*lives)}, nil
		}
		for lives = range 3 {
			if job, err := b.pass(); err != nil || job.Result != receipt.Upgraded {
				t.Fatalf("life %d: job %+v, %v", lives, job, err)
			}
		}
		lives = 3
		job, err := b.pass()
		want, effects := receipt.Exhausted, ""
		if optional {
			want, effects = receipt.Provisioned, "configure restart"
		}
		if err != nil || job.Result != want || b.effects() != effects {
			t.Fatalf("optional %t: job %s (%s), %v, effects %q", optional, job.Result, job.Why, err, b.effects())
		}
		if !optional && !strings.Contains(job.Why, "3 upgrades to 1.2.3 changed nothing") {
			t.Errorf("why: %s", job.Why)
		}
	}
}

// TestLostUpgradeBlocks: an upgrade that takes longer than the agent's patience has no reply; nothing is sent again.
func TestLostUpgradeBlocks(t *testing.T) {
	b := upgrading(t)
	b.publish = failing(0, "")
	b.waits = make(chan struct{})
	job, err := b.pass()
	if err != nil || job.Status != receipt.Blocked || b.effects() != "release_update" {
		t.Fatalf("job %+v, %v, effects %q", job, err, b.effects())
	}
	open, err := b.j.OpenReceipts()
	if err != nil || len(open) != 1 || open[0].Target != "1.2.3" {
		t.Errorf("open %+v, %v", open, err)
	}
}
