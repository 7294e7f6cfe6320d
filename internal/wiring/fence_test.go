package wiring_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"provctl/internal/agent"
	"provctl/internal/choria"
	"provctl/internal/fleet"
	"provctl/internal/wiring"
	"provctl/journal"
	"provctl/journal/journaltest"
	"provctl/receipt"
	"provctl/sequence"
)

// verdict is a fence that always says the same.
type verdict struct{ err error }

func (v verdict) Check(receipt.Receipt) error { return v.err }

// TestRefusalsOfTheFenceAreTold: each once, and nothing else is; not those that say nothing is wrong.
func TestRefusalsOfTheFenceAreTold(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f, err := fleet.Start(ctx, fleet.Options{Dir: t.TempDir() + "/fleet"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	files, err := f.WriteWorkerFiles(t.TempDir(), fleet.WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := choria.New(choria.Options{ConfigFile: files.ChoriaConfig, Password: files.Password, TTL: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	if err := engine.Connect(ctx); err != nil {
		t.Fatal(err)
	}
	j := journaltest.Open(t)
	for _, tc := range []struct {
		name string
		says error
	}{
		{"refused", receipt.ErrFenced},
		{"allowed", nil},
		{"expired", fmt.Errorf("%w: %w", receipt.ErrFenced, receipt.ErrExpired)},
		{"standby", fmt.Errorf("%w: %w", receipt.ErrFenced, receipt.ErrStandby)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var told []error
			n := wiring.Network{Engine: engine, Guard: verdict{tc.says}, Refused: func(err error) { told = append(told, err) }}
			prepared, err := n.Prepare(receipt.NodeID(tc.name), receipt.Gen25519, agent.Gen25519{Nonce: "n"})
			if err != nil {
				t.Fatal(err)
			}
			call, err := n.Publish(ctx, begun(t, j, prepared, receipt.NodeID(tc.name)), prepared)
			if tc.says == nil {
				if err != nil || len(told) != 0 {
					t.Fatalf("Publish gave %v, told %v", err, told)
				}
				<-call.Done() // nobody is there
				return
			}
			alarms := 1
			if errors.Is(tc.says, receipt.ErrExpired) || errors.Is(tc.says, receipt.ErrStandby) {
				alarms = 0
			}
			if !errors.Is(err, sequence.ErrNotSent) || !errors.Is(err, receipt.ErrFenced) || len(told) != alarms {
				t.Errorf("Publish gave %v, told %v", err, told)
			}
		})
	}
}

// begun writes the receipt of a prepared effect.
func begun(t *testing.T, j *journal.Journal, p sequence.Prepared, node receipt.NodeID) *journal.Pending {
	t.Helper()
	admissions, err := j.Admit(t.Context(), []journal.Sighting{{Node: node, Source: "discovery"}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	job, err := j.Claim(t.Context(), admissions[0].Job.ID)
	if err != nil {
		t.Fatal(err)
	}
	pending, err := j.Begin(t.Context(), journal.Intent{
		Job: job.ID, Action: receipt.Gen25519, Incarnation: receipt.Incarnation{PID: 1, Start: 1_700_000_000},
		Request: p.Request, RequestTime: p.Time, Horizon: p.Horizon, Digest: p.Digest,
	})
	if err != nil {
		t.Fatal(err)
	}
	return pending
}
