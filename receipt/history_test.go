package receipt_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"provctl/receipt"
)

// past is one earlier receipt of the incarnation, in short.
type past struct {
	action receipt.Action
	status receipt.Status
}

func historyOf(forgiven receipt.Seq, all ...past) receipt.History {
	h := receipt.History{Forgiven: forgiven}
	for i, p := range all {
		r := sample(p.action, p.status)
		r.Seq = receipt.Seq(10 * (i + 1))
		r.ID = receipt.ReceiptID([]string{"R1", "R2", "R3", "R4", "R5", "R6"}[i])
		h.Receipts = append(h.Receipts, r)
	}
	return h
}

// TestMayBeginAfterOneReceipt holds every effect against one earlier receipt of every effect in every status.
func TestMayBeginAfterOneReceipt(t *testing.T) {
	for _, a := range receipt.Actions() {
		if err := (receipt.History{}).MayBegin(a); err != nil {
			t.Errorf("%s on a fresh node: %v", a, err)
		}
		for _, earlier := range receipt.Actions() {
			for _, s := range receipt.Statuses() {
				key := a == receipt.Gen25519 || a == receipt.GenCSR
				var want bool
				switch {
				case s == receipt.Pending || s == receipt.Unknown:
					want = false
				case earlier == receipt.ReleaseUpdate && s == receipt.Applied:
					want = false
				case key:
					want = earlier != receipt.Configure
				case earlier != a:
					want = true
				default:
					want = s == receipt.Refused || s == receipt.NotSent || s == receipt.NotApplied || s == receipt.Failed
				}
				err := historyOf(0, past{earlier, s}).MayBegin(a)
				if (err == nil) != want {
					t.Errorf("%s after %s %s: %v, want allowed %t", a, earlier, s, err, want)
				}
				if err != nil && (!errors.Is(err, receipt.ErrRepeat) || !strings.Contains(err.Error(), "R1") || !strings.Contains(err.Error(), "n1.example.net")) {
					t.Errorf("%s after %s %s: %q does not name node and receipt, or is no ErrRepeat", a, earlier, s, err)
				}
			}
		}
	}
}

// TestMayBeginLongerHistories covers the failed limit, forgiveness, and that the order of receipts hides nothing.
func TestMayBeginLongerHistories(t *testing.T) {
	const c, g = receipt.Configure, receipt.Gen25519
	failed, refused, abandoned := past{c, receipt.Failed}, past{c, receipt.Refused}, past{c, receipt.Abandoned}
	for _, tc := range []struct {
		name    string
		action  receipt.Action
		history receipt.History
		want    string // "" if allowed, else a part of the message
	}{
		{"two failed", c, historyOf(0, failed, failed), ""},
		{"three failed", c, historyOf(0, failed, failed, failed), "number 3 that failed"},
		{"refused in between does not count nor reset", c, historyOf(0, failed, refused, failed, refused, failed), "R5"},
		{"failures of another effect do not count", c, historyOf(0, failed, failed, past{receipt.Restart, receipt.Failed}), ""},
		{"any number of refusals", c, historyOf(0, refused, refused, refused, refused), ""},
		{"applied hidden behind refusals", c, historyOf(0, past{c, receipt.Applied}, refused, refused), "R1"},
		{"applied hidden behind a failure", c, historyOf(0, past{c, receipt.Applied}, failed), "may have taken effect"},
		{"open receipt of another effect at the start", c, historyOf(0, past{g, receipt.Unknown}, refused), "is open"},
		{"three failed, forgiven", c, historyOf(31, failed, failed, failed), ""},
		{"forgiven up to the second only", c, historyOf(21, failed, failed, failed), ""},
		{"forgiven at the very sequence forgives what lies before", c, historyOf(10, failed, failed, failed), "number 3"},
		{"forgiven, then three failed again", c, historyOf(11, failed, failed, failed, failed), "number 3"},
		{"abandoned", c, historyOf(0, abandoned), "may have taken effect"},
		{"abandoned, forgiven", c, historyOf(11, abandoned), ""},
		{"abandoned after the forgiveness", c, historyOf(10, abandoned), "may have taken effect"},
		{"applied is never forgiven", c, historyOf(99, past{c, receipt.Applied}), "may have taken effect"},
		{"moot is never forgiven", c, historyOf(99, past{c, receipt.Moot}), "may have taken effect"},
		{"open is never forgiven", c, historyOf(99, past{c, receipt.Unknown}), "is open"},
		{"pending is never forgiven", g, historyOf(99, past{c, receipt.Pending}), "is open"},
		{"keys again and again", g, historyOf(0, past{g, receipt.Applied}, past{g, receipt.Moot}, past{g, receipt.Abandoned}, past{g, receipt.Failed}), ""},
		{"keys after a configure, even refused", g, historyOf(0, past{g, receipt.Applied}, refused), "new keys would break"},
		{"keys after a configure, even forgiven", g, historyOf(99, past{g, receipt.Applied}, failed), "new keys would break"},
		{"keys after a configure that was not sent", receipt.GenCSR, historyOf(0, past{c, receipt.NotSent}), "new keys would break"},
		{"configure after keys", c, historyOf(0, past{g, receipt.Applied}), ""},
		{"restart twice", receipt.Restart, historyOf(0, past{c, receipt.Applied}, past{receipt.Restart, receipt.Applied}), "R2"},
		{"restart moot", receipt.Restart, historyOf(0, past{receipt.Restart, receipt.Moot}), "R1"},
		{"restart outlived, forgiven", receipt.Restart, historyOf(11, past{receipt.Restart, receipt.Applied}), ""},
		{"restart outlived, not forgiven", receipt.Restart, historyOf(10, past{receipt.Restart, receipt.Applied}), "may have taken effect"},
		{"shutdown after restart", receipt.Shutdown, historyOf(0, past{receipt.Restart, receipt.Failed}), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.history.MayBegin(tc.action)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("not allowed: %v", err)
			case tc.want != "" && (!errors.Is(err, receipt.ErrRepeat) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want ErrRepeat with %q", err, tc.want)
			}
		})
	}
}

// TestMayBeginEnds: a node that a hundred receipts did not provision needs a person, whatever the receipts say; a person's admit
// starts the count anew.
func TestMayBeginEnds(t *testing.T) {
	h := receipt.History{}
	for i := 1; i <= 100; i++ {
		r := sample(receipt.Configure, receipt.Refused)
		r.Seq = receipt.Seq(i)
		if err := h.MayBegin(receipt.Configure); err != nil {
			t.Fatalf("after %d refusals: %v", i-1, err)
		}
		h.Receipts = append(h.Receipts, r)
	}
	if err := h.MayBegin(receipt.Configure); !errors.Is(err, receipt.ErrRepeat) {
		t.Errorf("after 100 refusals: %v", err)
	}
	h.Forgiven = 101
	if err := h.MayBegin(receipt.Configure); err != nil {
		t.Errorf("after an admit: %v", err)
	}
}

// TestDone: an outcome stands until a later receipt of the same effect may have changed the node.
func TestDone(t *testing.T) {
	const g = receipt.Gen25519
	applied := past{g, receipt.Applied}
	for _, tc := range []struct {
		name    string
		history receipt.History
		want    receipt.ReceiptID
	}{
		{"nothing", historyOf(0), ""},
		{"another effect", historyOf(0, past{receipt.GenCSR, receipt.Applied}), ""},
		{"refused only", historyOf(0, past{g, receipt.Refused}), ""},
		{"applied", historyOf(0, applied), "R1"},
		{"the last of two", historyOf(0, applied, applied), "R2"},
		{"then refused", historyOf(0, applied, past{g, receipt.Refused}), "R1"},
		{"then not sent and not applied", historyOf(0, applied, past{g, receipt.NotSent}, past{g, receipt.NotApplied}), "R1"},
		{"then failed, perhaps half way", historyOf(0, applied, past{g, receipt.Failed}), ""},
		{"then moot", historyOf(0, applied, past{g, receipt.Moot}), ""},
		{"then abandoned", historyOf(0, applied, past{g, receipt.Abandoned}), ""},
		{"then unknown", historyOf(0, applied, past{g, receipt.Unknown}), ""},
		{"failed, then applied", historyOf(0, past{g, receipt.Failed}, applied), "R2"},
		{"another effect failed later", historyOf(0, applied, past{receipt.Configure, receipt.Failed}), "R1"},
	} {
		var got receipt.ReceiptID
		if r := tc.history.Done(g); r != nil {
			got = r.ID
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestConfigured: any configure receipt counts, whatever became of it.
func TestConfigured(t *testing.T) {
	for _, s := range receipt.Statuses() {
		if !historyOf(0, past{receipt.Gen25519, receipt.Applied}, past{receipt.Configure, s}).Configured() {
			t.Errorf("a configure that is %s does not count", s)
		}
	}
	if historyOf(0, past{receipt.Gen25519, receipt.Applied}, past{receipt.Restart, receipt.Applied}).Configured() {
		t.Error("configured without a configure receipt")
	}
}

// TestUpgradeTries: three upgrades to one version are enough; what provably changed nothing, another version, a configure in between
// and an operator's admit begin anew or do not count.
func TestUpgradeTries(t *testing.T) {
	of := func(target string, statuses ...receipt.Status) (out []receipt.Receipt) {
		for _, s := range statuses {
			r := sample(receipt.ReleaseUpdate, s)
			r.Target = target
			out = append(out, r)
		}
		return out
	}
	configured := []receipt.Receipt{sample(receipt.Configure, receipt.Applied)}
	const a, f, m = receipt.Applied, receipt.Failed, receipt.Moot
	for _, c := range []struct {
		name     string
		receipts []receipt.Receipt
		tries    int
	}{
		{"none", nil, 0},
		{"two", of("1.2.3", a, f), 2},
		{"three", of("1.2.3", a, f, m), 3},
		{"the same version in other words", append(of("1.2.3-1", a), of("0:1.2.3", a, a)...), 3},
		{"another version", append(of("1.2.4", a, a, a), of("1.2.3", a)...), 1},
		{"harmless ones", of("1.2.3", receipt.Refused, receipt.NotSent, receipt.NotApplied, a), 1},
		{"configured in between", slices.Concat(of("1.2.3", a, a, a), configured, of("1.2.3", a)), 1},
	} {
		for i := range c.receipts {
			c.receipts[i].Seq = receipt.Seq(i + 1)
		}
		if n := receipt.UpgradeTries(c.receipts, "1.2.3", 0); n != c.tries {
			t.Errorf("%s: %d tries, want %d", c.name, n, c.tries)
		}
		if err := receipt.MayUpgrade(c.receipts, "1.2.3", 0); (err != nil) != (c.tries >= 3) || err != nil && !errors.Is(err, receipt.ErrRepeat) {
			t.Errorf("%s: %v", c.name, err)
		}
		if n := receipt.UpgradeTries(c.receipts, "1.2.3", 100); n != 0 {
			t.Errorf("%s, forgiven: %d tries", c.name, n)
		}
	}
}

// TestFound: a restart's acceptance proves the configure that it was sent for only if no other one may have left its configuration.
func TestFound(t *testing.T) {
	finishing := sample(receipt.Configure, receipt.Finishing)
	for _, c := range []struct {
		other receipt.Status
		told  receipt.Event
		want  receipt.Event
	}{
		{0, receipt.ProvedApplied, receipt.ProvedApplied},
		{receipt.Refused, receipt.ProvedApplied, receipt.ProvedApplied},
		{receipt.NotSent, receipt.ProvedApplied, receipt.ProvedApplied},
		{receipt.NotApplied, receipt.ProvedApplied, receipt.ProvedApplied},
		{receipt.Failed, receipt.ProvedApplied, receipt.ProvedMoot},
		{receipt.Abandoned, receipt.ProvedApplied, receipt.ProvedMoot},
		{receipt.Failed, receipt.ProvedNotDone, receipt.ProvedNotDone},
		{receipt.Failed, receipt.Withdrawn, receipt.Withdrawn},
	} {
		h := receipt.History{}
		if c.other != 0 {
			h.Receipts = append(h.Receipts, sample(receipt.Configure, c.other))
		}
		h.Receipts = append(h.Receipts, finishing, sample(receipt.Restart, receipt.Applied))
		if got := h.Found(c.told); got != c.want {
			t.Errorf("after a configure that is %s, %s finds %s, want %s", c.other, c.told, got, c.want)
		}
	}
}
