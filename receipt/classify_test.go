package receipt_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"provctl/receipt"
)

const (
	noToken  = "Incorrect provision token supplied"
	noLock   = "Could not obtain provisioning lock"
	noMode   = "Cannot reconfigure a server that is not in provisioning mode"
	noRights = "You are not authorized to call this agent or action"
)

// answer is a reply to one effect and what it must be taken for.
type answer struct {
	action receipt.Action
	code   int
	text   string
	want   receipt.Event
}

func check(t *testing.T, answers []answer) {
	t.Helper()
	for _, a := range answers {
		got, why := receipt.Classify(a.action, receipt.Reply{Code: a.code, Text: a.text})
		if got != a.want || why == "" {
			t.Errorf("%s: code %d %q is %s (%s), want %s", a.action, a.code, a.text, got, why, a.want)
		}
	}
}

// TestClassifyBeforeAnyAction: these reject whatever the effect.
func TestClassifyBeforeAnyAction(t *testing.T) {
	for _, a := range receipt.Actions() {
		check(t, []answer{
			{a, 2, "Unknown action x for agent choria_provision", receipt.ReplyRefused},
			{a, 4, "Could not process request: could not parse incoming message as a MCollective SimpleRPC Request: EOF", receipt.ReplyRefused},
			{a, 4, "Could not parse request data for choria_provision#x: unexpected end of JSON input", receipt.ReplyRefused},
			{a, 4, "Validation failed: token is not shellsafe", receipt.ReplyRefused},
			{a, 1, noRights, receipt.ReplyRefused},
			{a, 1, noToken, receipt.ReplyRefused},
			// Near misses: the code, the case, the beginning or the end differs.
			{a, 1, "Unknown action x for agent choria_provision", receipt.ReplyFailed},
			{a, 2, "Unknown actions", receipt.ReplyFailed},
			{a, 2, "", receipt.ReplyFailed},
			{a, 5, "Could not process request: x", receipt.ReplyFailed},
			{a, 3, "Validation failed: x", receipt.ReplyFailed},
			{a, 4, "validation failed: x", receipt.ReplyFailed},
			{a, 4, "Validation failed", receipt.ReplyFailed},
			{a, 4, " Validation failed: x", receipt.ReplyFailed},
			{a, 4, "TLS Setup Failed: Validation failed: x", receipt.ReplyFailed},
			{a, 4, noToken, receipt.ReplyFailed},
			{a, 1, noToken + ", after the key was replaced", receipt.ReplyFailed},
			{a, 1, noRights + " any more", receipt.ReplyFailed},
			{a, 1, strings.ToLower(noToken), receipt.ReplyFailed},
			{a, 1, "", receipt.ReplyFailed},
			{a, 1, "something new", receipt.ReplyFailed},
			{a, 3, "", receipt.ReplyFailed},
			{a, 5, "", receipt.ReplyFailed},
			// Rejections cannot be successes, and no agent sends these codes.
			{a, 0, noToken, receipt.Lost},
			{a, 0, "Unknown action x for agent choria_provision", receipt.Lost},
			{a, 0, "", receipt.Lost},
			{a, 0, "OK", receipt.Lost},
			{a, -1, noToken, receipt.Lost},
			{a, 6, noToken, receipt.Lost},
			{a, 1 << 40, noToken, receipt.Lost},
		})
	}
}

// TestClassifyLockAndMode: only the locked actions know the lock, and each has its own words for the mode.
func TestClassifyLockAndMode(t *testing.T) {
	modes := map[receipt.Action]string{
		receipt.Gen25519: noMode, receipt.GenCSR: noMode, receipt.Configure: noMode,
		receipt.ReleaseUpdate: "Cannot update a server that is not in provisioning mode",
		receipt.Restart:       "Cannot restart a server that is not in provisioning mode or with no token set",
		receipt.Shutdown:      "Cannot shutdown a server that is not in provisioning mode or with no token set",
	}
	for _, a := range receipt.Actions() {
		lock := receipt.ReplyRefused
		if a == receipt.Restart || a == receipt.Shutdown {
			lock = receipt.ReplyFailed
		}
		check(t, []answer{{a, 1, noLock, lock}, {a, 1, noLock + " in time", receipt.ReplyFailed}, {a, 4, noLock, receipt.ReplyFailed}})
		for _, text := range modes {
			want := receipt.ReplyFailed
			if text == modes[a] {
				want = receipt.ReplyRefused
			}
			check(t, []answer{{a, 1, text, want}, {a, 1, text + "!", receipt.ReplyFailed}, {a, 0, text, receipt.Lost}})
		}
	}
}

// TestClassifyKeys covers gen25519 and gencsr, whose success is data and not a text.
func TestClassifyKeys(t *testing.T) {
	const g, c = receipt.Gen25519, receipt.GenCSR
	check(t, []answer{
		{g, 1, "Cannot determine where to store secure data, no configure file given", receipt.ReplyRefused},
		{g, 1, "could not determine absolute path to config directory: getwd: no such file", receipt.ReplyRefused},
		{g, 1, "Could not create keypair: entropy", receipt.ReplyRefused},
		{g, 1, "Could not create keypair", receipt.ReplyFailed},
		{g, 1, "Could not determine absolute path to config directory: x", receipt.ReplyFailed},
		{g, 1, "Could not remove existing jwt file: /etc/choria/server.jwt: permission denied", receipt.ReplyFailed},
		{g, 1, "Could not write key /etc/choria/server.seed: no space left on device", receipt.ReplyFailed},
		{g, 1, "Could not sign the nonce: x", receipt.ReplyFailed},
		{c, 1, "Cannot determine where to store SSL data, no configure file given and no SSL directory configured", receipt.ReplyRefused},
		{c, 1, "Could not create keypair: entropy", receipt.ReplyFailed},
		{c, 1, "Could not create SSL Directory /etc/choria/ssl: x", receipt.ReplyFailed},
		{c, 1, "Could not create CSR: x", receipt.ReplyFailed},
		{c, 1, "Could not create private key: x", receipt.ReplyFailed},
		{c, 1, "Could not store private key: x", receipt.ReplyFailed},
		{c, 1, "Could not create CSR bytes: x", receipt.ReplyFailed},
		{c, 1, "Could not store CSR: x", receipt.ReplyFailed},
		{g, 0, "Wrote 3 lines to /etc/choria/server.conf", receipt.Lost},
	})
	for _, a := range append(receipt.Actions(), 0, 99) {
		want := receipt.Lost
		if a == g || a == c {
			want = receipt.ReplyApplied
		}
		if got, _ := receipt.Classify(a, receipt.Reply{Usable: true}); got != want {
			t.Errorf("%s with data and no text is %s, want %s", a, got, want)
		}
	}
	if got, _ := receipt.Classify(g, receipt.Reply{Code: 1, Text: "Could not remove existing jwt file: x: y", Usable: true}); got != receipt.ReplyFailed {
		t.Errorf("a key besides an error is %s", got)
	}
}

// TestClassifyTexts covers the effects whose success is a text.
func TestClassifyTexts(t *testing.T) {
	const u, c, r, s = receipt.ReleaseUpdate, receipt.Configure, receipt.Restart, receipt.Shutdown
	const conf = "Configuration /etc/choria/server.conf"
	check(t, []answer{
		{c, 0, "Wrote 12 lines to /etc/choria/server.conf", receipt.ReplyApplied},
		{c, 0, "wrote 12 lines to /etc/choria/server.conf", receipt.Lost},
		{c, 0, "Wrote", receipt.Lost},
		{c, 0, "Restarting Choria Server after 2s", receipt.Lost},
		{c, 1, "Wrote 12 lines to /etc/choria/server.conf", receipt.ReplyFailed},
		{c, 1, "Cannot determine the configuration file to manage", receipt.ReplyRefused},
		{c, 1, "Did not receive any configuration to write, cannot write a empty configuration file", receipt.ReplyRefused},
		{c, 1, "EDCH Public Key not supplied while providing a private key", receipt.ReplyRefused},
		{c, 1, "EDCH Public Key not supplied while providing a private key: TLS Setup Failed", receipt.ReplyFailed},
		{c, 1, "Could not decode configuration data: invalid character 'x'", receipt.ReplyRefused},
		{c, 5, "Could not decode configuration data: invalid character 'x'", receipt.ReplyFailed},
		{c, 1, "TLS Setup Failed: could not decrypt private key: no ECDH Public Key", receipt.ReplyFailed},
		{c, 1, "JWT Setup Failed: permission denied", receipt.ReplyFailed},
		{c, 1, "Could not write config: cannot create a temp file", receipt.ReplyFailed},
		{c, 1, "Could not save Action Policies: expected \"x\" to have .policy extension", receipt.ReplyFailed},
		{c, 1, "Could not save Open Policy Agent Policies: x", receipt.ReplyFailed},

		{u, 0, "Restarting Choria Server after 2s", receipt.ReplyApplied},
		{u, 1, "Version updates is not enabled in the configuration", receipt.ReplyRefused},
		{u, 1, "Update to version 1.2 failed, release rolled back: no such file", receipt.ReplyFailed},
		{u, 1, "Update to version 1.2 failed, rollback also failed, server in broken state: x", receipt.ReplyFailed},
		{u, 0, "Shutting Choria Server down after 2s", receipt.Lost},

		{r, 0, "Restarting Choria Server after 3s", receipt.ReplyApplied},
		{r, 0, "Shutting Choria Server down after 3s", receipt.Lost},
		{r, 1, conf + " could not be parsed, restart cannot continue: open: no such file", receipt.ReplyRefused},
		{r, 1, conf + " enables provisioning, restart cannot continue", receipt.ReplyRefused},
		{r, 1, conf + " enables provisioning, restart cannot continue but did", receipt.ReplyFailed},
		{r, 1, conf + " could not be parsed, restart goes on: x", receipt.ReplyFailed},
		{r, 1, conf, receipt.ReplyFailed},
		{r, 1, "The configuration enables provisioning, restart cannot continue", receipt.ReplyFailed},
		{r, 4, conf + " enables provisioning, restart cannot continue", receipt.ReplyFailed},
		{c, 1, conf + " enables provisioning, restart cannot continue", receipt.ReplyFailed},

		{s, 0, "Shutting Choria Server down after 0s", receipt.ReplyApplied},
		{s, 0, "Restarting Choria Server after 3s", receipt.Lost},
		{s, 1, "Shutting Choria Server down after 0s", receipt.ReplyFailed},
	})
}

// TestClassifyTrouble: a reply that could not be used counts for nothing, whatever else it says.
func TestClassifyTrouble(t *testing.T) {
	for _, a := range receipt.Actions() {
		for _, r := range []receipt.Reply{
			{Trouble: "two replies", Usable: true},
			{Trouble: "not JSON", Code: 1, Text: noToken},
			{Trouble: "no status code", Text: "Wrote 3 lines to x"},
		} {
			got, why := receipt.Classify(a, r)
			if got != receipt.Lost || !strings.Contains(why, r.Trouble) {
				t.Errorf("%s with trouble is %s (%s), want lost with the reason", a, got, why)
			}
		}
	}
}

// TestClassifyQuotes: a node's text cannot forge lines of ours nor flood them.
func TestClassifyQuotes(t *testing.T) {
	for _, code := range []int{0, 1} {
		_, why := receipt.Classify(receipt.Configure, receipt.Reply{Code: code, Text: "x\n\x1b[2J\xff" + strings.Repeat("é", 5000)})
		if strings.ContainsAny(why, "\n\x1b") || !utf8.ValidString(why) || len(why) > 1000 {
			t.Errorf("code %d: %d bytes, %q", code, len(why), why)
		}
	}
}

// TestToldByRestart: only a restart's acceptance and its two refusals that look at the configuration file say anything of the configure.
func TestToldByRestart(t *testing.T) {
	for _, c := range []struct {
		text string
		code int
		want receipt.Event
	}{
		{"Restarting Choria Server after 3s", 0, receipt.ProvedApplied},
		{"Configuration /etc/choria/server.conf enables provisioning, restart cannot continue", 1, receipt.ProvedNotDone},
		{"Configuration /etc/choria/server.conf could not be parsed, restart cannot continue: bad line", 1, receipt.ProvedFailed},
		{"Cannot restart a server that is not in provisioning mode or with no token set", 1, 0},
		{"enables provisioning, restart cannot continue, or so", 1, 0},
		{"something new", 1, 0},
		{"something new", 0, 0},
	} {
		means, _ := receipt.Classify(receipt.Restart, receipt.Reply{Code: c.code, Text: c.text})
		if got := receipt.ToldByRestart(means, c.text); got != c.want {
			t.Errorf("%q with code %d tells %s, want %s", c.text, c.code, got, c.want)
		}
	}
}
