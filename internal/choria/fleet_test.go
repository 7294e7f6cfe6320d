package choria

import (
	"crypto/ed25519"
	"encoding/hex"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"provctl/internal/agent"
	"provctl/internal/fleet"
	"provctl/receipt"
)

// realNodes starts real Choria servers, each a process of its own.
func realNodes(t testing.TB, count int) *fleet.Fleet {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := fleet.Start(deadline(t), fleet.Options{Dir: t.TempDir(), Nodes: count, NodeCommand: []string{exe, nodeArgument}, Log: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

func publishAndWait(t testing.TB, e *Engine, n receipt.NodeID, a receipt.Action, in any) Outcome {
	t.Helper()
	pr, err := e.Prepare(n, a, in)
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.Publish(deadline(t), receiptFor(pr), open, pr)
	if err != nil {
		t.Fatal(err)
	}
	return wait(t, c)
}

// TestRealNodes drives real servers through what an engine does for a node.
func TestRealNodes(t *testing.T) {
	f := realNodes(t, 2)
	events := make(chan Event, 64)
	e := engine(t, f, func(o *Options) { o.TTL, o.OnEvent = 20*time.Second, func(ev Event) { events <- ev } })
	files, err := f.WriteWorkerFiles(t.TempDir(), fleet.WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	if _, err := e.Discover(deadline(t), 3*time.Second, func(n receipt.NodeID) { found = append(found, string(n)) }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	if !slices.Equal(found, f.Nodes()) {
		t.Fatalf("discovered %v, want %v", found, f.Nodes())
	}
	n := receipt.NodeID(f.Nodes()[0])
	first, err := e.Stats(deadline(t), n)
	if err != nil {
		t.Fatal(err)
	}
	if state := f.State().Nodes[string(n)]; int64(state.PID) != first.Incarnation.PID {
		t.Errorf("stats say %s, the process is %d", first.Incarnation, state.PID)
	}
	base := e.BaselineOf(n, first)

	jwt, err := e.JWT(deadline(t), n, files.Token)
	if err != nil || strings.Count(jwt.JWT, ".") != 2 || len(jwt.ECDHPublic) != 64 {
		t.Errorf("jwt %+v, %v", jwt, err)
	}
	inventory, err := e.Inventory(deadline(t), n)
	if err != nil || !strings.Contains(string(inventory), `"facts"`) {
		t.Errorf("inventory %s, %v", inventory, err)
	}
	if _, err := e.JWT(deadline(t), n, "wrong"); err == nil || !strings.Contains(err.Error(), "Incorrect provision token") {
		t.Errorf("a wrong token: %v", err)
	}

	o := publishAndWait(t, e, n, receipt.Gen25519, agent.Gen25519{Token: files.Token, Nonce: "nonce"})
	if o.Event != receipt.ReplyApplied {
		t.Fatalf("gen25519: %s (%s)", o.Event, o.Why)
	}
	key, err := DecodeKey(receipt.Gen25519, o.Data)
	if err != nil {
		t.Fatal(err)
	}
	pub, _ := hex.DecodeString(key.Public)
	sig, _ := hex.DecodeString(key.Signature)
	if dir, _ := f.NodeDir(string(n)); !ed25519.Verify(pub, []byte("nonce"), sig) || key.Directory != dir {
		t.Errorf("key %+v does not verify, or is not in %s", key, dir)
	}
	counted := func(effects int64) {
		t.Helper()
		probe, err := e.Stats(deadline(t), n)
		if err != nil {
			t.Fatal(err)
		}
		if known := e.KnownSince(n, base, probe); probe.Validated-base.Validated != known+effects {
			t.Errorf("validated %d since the baseline, of which %d are known, and %d were effects", probe.Validated-base.Validated, known, effects)
		}
	}
	counted(1)
	if _, err := e.Discover(deadline(t), 3*time.Second, func(receipt.NodeID) {}); err != nil {
		t.Fatal(err)
	}
	counted(1)

	if o := publishAndWait(t, e, n, receipt.Gen25519, agent.Gen25519{Token: "wrong", Nonce: "nonce"}); o.Event != receipt.ReplyRefused {
		t.Errorf("gen25519 with a wrong token: %s (%s)", o.Event, o.Why)
	}
	if o := publishAndWait(t, e, n, receipt.ReleaseUpdate, agent.ReleaseUpdate{Token: files.Token, Repository: "http://127.0.0.1:1", Version: "9"}); o.Event != receipt.ReplyRefused {
		t.Errorf("an update that is not enabled: %s (%s)", o.Event, o.Why)
	}
	if o := publishAndWait(t, e, n, receipt.Configure, agent.Configure{Token: files.Token, Config: agent.Config{"identity": string(n), "plugin.choria.server.provision": "1"}}); o.Event != receipt.ReplyApplied {
		t.Errorf("configure: %s (%s)", o.Event, o.Why)
	}
	for ev := receive(t, events); ev.Node != n || ev.Seen.Type != Provisioned; ev = receive(t, events) {
		t.Logf("event %+v", ev)
	}
	if o := publishAndWait(t, e, n, receipt.Restart, agent.Restart{Token: files.Token, Splay: 1}); o.Event != receipt.ReplyRefused {
		t.Errorf("restart into provisioning: %s (%s)", o.Event, o.Why)
	}
	counted(5)
	shutdownLeaves(t, f, e, n, files.Token)
	onlyOurEffects(t, f)
}

// shutdownLeaves ends the node's process and watches it leave the broker.
func shutdownLeaves(t *testing.T, f *fleet.Fleet, e *Engine, n receipt.NodeID, token string) {
	t.Helper()
	before := time.Now()
	if seen, err := e.Connections(deadline(t), n, before); err != nil || seen.Live != 1 {
		t.Errorf("connections of a living node: %+v, %v", seen, err)
	}
	if o := publishAndWait(t, e, n, receipt.Shutdown, agent.Shutdown{Token: token}); o.Event != receipt.ReplyApplied {
		t.Fatalf("shutdown: %s (%s)", o.Event, o.Why)
	}
	if err := f.Wait(deadline(t), func(s fleet.State) bool { return !s.Nodes[string(n)].Alive }); err != nil {
		t.Fatal(err)
	}
	settle(t, "the broker sees it leave", func() bool {
		seen, err := e.Connections(deadline(t), n, before)
		return err == nil && seen.Live == 0 && seen.LastClosed.After(before)
	})
	if o := publishAndWait(t, e, n, receipt.Shutdown, agent.Shutdown{Token: token}); o.Event != receipt.NeverSent {
		t.Errorf("an effect on a node that left: %s (%s)", o.Event, o.Why)
	}
}

// onlyOurEffects compares with the nodes' own logs: each request of an effect began once.
func onlyOurEffects(t *testing.T, f *fleet.Fleet) {
	t.Helper()
	entries, err := f.Entries()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, entry := range entries {
		if entry.Effect && entry.Phase == fleet.PhaseBegin {
			seen[entry.RequestID]++
		}
	}
	for id, times := range seen {
		if times != 1 {
			t.Errorf("request %s began %d times", id, times)
		}
	}
	if len(seen) != 6 {
		t.Errorf("the nodes began %d effects, want 6", len(seen))
	}
}

// TestRealNodeFaults lets a real node's replies go wrong in every way a fleet knows.
func TestRealNodeFaults(t *testing.T) {
	f := realNodes(t, 1)
	late := make(chan LateReply, 8)
	e := engine(t, f, func(o *Options) {
		o.TTL, o.Skew = 4*time.Second, time.Millisecond
		o.OnLate = func(l LateReply) { late <- l }
	})
	n := receipt.NodeID(f.Nodes()[0])
	files, err := f.WriteWorkerFiles(t.TempDir(), fleet.WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var total int
	for _, tc := range []struct {
		name  string
		fault fleet.Fault
		want  receipt.Event
		late  int
	}{
		{"none", fleet.Fault{}, receipt.ReplyApplied, 0},
		{"dropped", fleet.Fault{Kind: fleet.Drop}, receipt.Lost, 0},
		{"duplicated", fleet.Fault{Kind: fleet.Duplicate}, receipt.Lost, 2}, // or applied, and the second is news
		{"late", fleet.Fault{Kind: fleet.Delay, Delay: 4500 * time.Millisecond}, receipt.Lost, 1},
		{"garbage", fleet.WireReply([]byte("{")), receipt.Lost, 0},
		{"nothing", fleet.WireReply([]byte{}), receipt.Lost, 0},
		{"huge", fleet.HugeReply(300 << 10), receipt.Lost, 1},
		{"mistyped", fleet.BodyReply(`{"statuscode":"0"}`), receipt.Lost, 1},
		{"other sender", fleet.Fault{Kind: fleet.Alter, Alter: fleet.Alteration{Sender: "other"}}, receipt.Lost, 0},
		{"other request", fleet.Fault{Kind: fleet.Alter, Alter: fleet.Alteration{RequestID: "2Other"}}, receipt.Lost, 0},
		{"other words", fleet.Fault{Kind: fleet.Answer, Code: 1, Text: "Could not obtain provisioning lock"}, receipt.ReplyRefused, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.name != "none" {
				f.SetFault(string(n), "gen25519", tc.fault)
			}
			o := publishAndWait(t, e, n, receipt.Gen25519, agent.Gen25519{Token: files.Token, Nonce: "x"})
			news := tc.late
			if tc.late == 2 && o.Event == receipt.ReplyApplied {
				news = 1
			} else if o.Event != tc.want {
				t.Errorf("outcome %s (%s), want %s", o.Event, o.Why, tc.want)
			}
			for range news {
				// an unusable reply is told too, so that a later one does not look like the only one
				if l := receive(t, late); l.Second != (tc.late == 2) {
					t.Errorf("late reply %+v", l)
				}
			}
			if tc.fault.Kind != fleet.Answer {
				total++
			}
		})
	}
	entries, err := f.Entries()
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, entry := range entries {
		if entry.Effect && entry.Phase == fleet.PhaseBegin {
			if ids[entry.RequestID] {
				t.Errorf("request %s began twice", entry.RequestID)
			}
			ids[entry.RequestID] = true
		}
	}
	if len(ids) != total {
		t.Errorf("the node began %d effects, %d were published", len(ids), total)
	}
	if len(late) != 0 {
		t.Errorf("%d further late replies", len(late))
	}
}
