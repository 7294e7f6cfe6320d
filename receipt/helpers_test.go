package receipt_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"provctl/receipt"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// golden compares got with testdata/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with: go test ./receipt -update", err)
	}
	if got != string(want) {
		t.Errorf("%s differs; if that is meant, run: go test ./receipt -update\n got:\n%s\nwant:\n%s", path, got, want)
	}
}

// The times that every test tells by. early lies before the horizon, late behind it and behind the longest splay.
var (
	asked   = time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	horizon = receipt.HorizonOf(asked, time.Minute, 10*time.Second)
	early   = asked.Add(30 * time.Second)
	late    = horizon.Add(time.Minute)
)

// The two lives of the node that the tests tell of.
var (
	first  = receipt.Incarnation{PID: 100, Start: 1740000000}
	second = receipt.Incarnation{PID: 100, Start: 1740000900}
)

// sample is a valid receipt in the given status.
func sample(a receipt.Action, s receipt.Status) receipt.Receipt {
	r := receipt.Receipt{
		ID: "R1", Seq: 10, Version: 12, Job: "J1", ClaimNo: 1, Epoch: 3, Node: "n1.example.net", Incarnation: first, Action: a,
		Request: "Q1", RequestTime: asked, Horizon: horizon, Digest: strings.Repeat("ab", 32), Token: "T1", Status: s,
	}
	if a == receipt.ReleaseUpdate {
		r.Target = "1.2.3"
	}
	return r
}

func sampleJob() receipt.Job {
	return receipt.Job{
		ID: "J1", Node: "n1.example.net", Seq: 5, Version: 9, Status: receipt.Claimed, Source: "discovery", Admitted: asked,
		Seen: asked, Claims: 1, Begun: 1, Epoch: 3, Incarnation: first, Receipts: []receipt.ReceiptID{"R1"},
	}
}

func sampleNode() receipt.Node {
	return receipt.Node{
		ID: "n1.example.net", Version: 11, Job: "J1", Open: "R1", Incarnation: first, Receipts: []receipt.ReceiptID{"R1"},
		HeldUntil: late, HeldWhy: "restarting", Forgiven: 2, LastResult: receipt.Deferred, LastEnded: early,
	}
}

func with(r receipt.Receipt, es ...receipt.Evidence) receipt.Receipt {
	r.Evidence = append([]receipt.Evidence(nil), es...)
	return r
}

func reply(at time.Time, code int, means receipt.Event) receipt.Evidence {
	return receipt.Evidence{
		Kind: receipt.SawReply, Source: "node", At: at, Reply: &receipt.ReplySeen{Code: code, Text: "some text", Means: means},
	}
}

func event(at time.Time, kind string) receipt.Evidence {
	return receipt.Evidence{
		Kind: receipt.SawEvent, Source: "event", At: at,
		Event: &receipt.EventSeen{Type: kind, Component: "provision_mode_server", Time: at.Unix()},
	}
}

// sampleBase is the baseline that answers made here were counted from.
var sampleBase = receipt.Baseline{Validated: 40, Epoch: 3, Ordinal: 7}

func stats(at time.Time, i receipt.Incarnation, validated, knownOnes int64) receipt.Evidence {
	return receipt.Evidence{
		Kind: receipt.SawStats, Source: "node", At: at,
		Stats: &receipt.StatsSeen{Incarnation: i, Validated: validated, Known: knownOnes, Base: sampleBase.ID(), Epoch: 3, Ordinal: 9},
	}
}

func connections(at time.Time, live int, closed time.Time) receipt.Evidence {
	return receipt.Evidence{
		Kind: receipt.SawConnections, Source: "broker", At: at,
		Connections: &receipt.ConnectionsSeen{Live: live, LastClosed: closed, Reason: "Client Closed"},
	}
}
