package inspect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kballard/go-shellquote"

	"provctl/receipt"
)

// firstLine is how the configuration file begins that a configure writes
// (go-choria v0.30.2 providers/agent/mcorpc/golang/provision/configure_action.go:258).
func firstLine(r receipt.Receipt) string {
	if r.Action != receipt.Configure {
		return ""
	}
	return fmt.Sprintf("# configuration file written in request %s from ", r.Request)
}

// propose runs the proof rules as advice. Only key generation asks for the incarnation's history, and the receipt alone tells
// it: none is ever begun once a configure receipt exists, and no other effect begins while it is open.
func propose(r receipt.Receipt, now time.Time) *Proposal {
	p, ok := receipt.Prove(r, receipt.History{Receipts: []receipt.Receipt{r}}, now)
	if !ok {
		return nil
	}
	out := &Proposal{Verdict: p.Suggests(r.Action), Rule: p.Rule, Why: p.Why}
	if p.Event == receipt.ProvedFailed {
		out.Why += " (it may be half done: look at the node; not-applied sends it again, abandon keeps the node out)"
	}
	if against := receipt.Contradiction(r, out.Verdict, now); against != "" {
		out.Why += " (but see what speaks against it: " + against + ")"
	}
	return out
}

// caution says what has to come before a verdict.
func caution(r receipt.Receipt, now time.Time) []string {
	if !r.Horizon.Passed(now) || !r.MayStillRun() {
		return nil
	}
	return []string{"The node has not shown since the horizon that it has done all that it accepted: the request may still wait in it. The worker asks it every 15 s; until it has answered, not-applied is refused, and what its disk shows is not final."}
}

// look says what an operator can look at by hand. What a node does with each request is in docs/design.md.
func look(r receipt.Receipt) []string {
	sent := r.RequestTime.UTC().Format(time.RFC3339)
	switch r.Action {
	case receipt.Configure:
		return []string{
			fmt.Sprintf("On the node, the first line of the server's configuration file (as a rule /etc/choria/server.conf). It begins %q: the file was written. Another request's line, or no file: not-applied.", firstLine(r)),
			"If it was written, the node's log from " + sent + " on: 'Could not save' means that policies are missing though the file is there; then not-applied, which writes all of it again. No such line: applied.",
		}
	case receipt.Restart:
		return []string{
			fmt.Sprintf("On the node, when the server process began: ps -o pid,lstart,args -C choria. After %s: applied. Still %s: not-applied.", sent, r.Incarnation),
			"Whether the node answers where its configuration puts it: choria ping -I " + quoted(string(r.Node)) + ". An answer: applied.",
		}
	case receipt.Shutdown:
		return []string{
			fmt.Sprintf("On the node, whether the server still runs: ps -o pid,lstart,args -C choria. No process: applied. Still %s, later than %s: not-applied.", r.Incarnation, r.Horizon.UTC().Format(time.RFC3339)),
		}
	case receipt.ReleaseUpdate:
		return []string{
			"On the node, the version of the server's program: choria --version. The wanted one: applied.",
			fmt.Sprintf("The node's log from %s on: 'release rolled back' means not-applied; 'broken state' means that the program has to be put right by hand, then abandon.", sent),
		}
	case receipt.Gen25519, receipt.GenCSR:
		return []string{"Nothing: while nothing was configured the keys may be made again, so not-applied is right whatever happened."}
	default:
		return []string{"The node's log from " + sent + " on."}
	}
}

// commands are what to type, one for each verdict, with the version that was shown.
func commands(r receipt.Receipt, weights []receipt.Weight, now time.Time, dir string) []Command {
	then := map[receipt.Verdict]string{
		receipt.VerdictApplied:    "the job goes on with its next step",
		receipt.VerdictNotApplied: "the job is queued again and sends it once more",
		receipt.VerdictAbandon:    "the job ends; the node stays out until its server is another process or it is admitted by hand",
		receipt.VerdictFinish: "the node is restarted to find out: it refuses if no usable configuration was written, which is not-applied, and goes to work if one was, " +
			"without its policies if writing those failed: look at its log for 'Could not save' first",
	}
	if r.Action == receipt.Restart || r.Action == receipt.Shutdown {
		then[receipt.VerdictApplied] = "the job ends as done"
	}
	firm := slices.ContainsFunc(weights, func(w receipt.Weight) bool { return w.Firm })
	out := make([]Command, 0, len(then))
	for _, v := range receipt.Verdicts() {
		if v == receipt.VerdictFinish && r.Action != receipt.Configure {
			continue
		}
		c := Command{Verdict: v, Then: then[v]}
		c.Run = command("reconcile", string(r.ID), "--state-dir", dir, "--seen", strconv.FormatUint(uint64(r.Version), 10), "--verdict", v.String()) + " --reason TEXT"
		if firm {
			if why := receipt.Contradiction(r, v, now); why != "" {
				c.Run += " --contradict-evidence"
				c.Then += "; evidence says otherwise (" + why + "), so this goes on record as against it"
			}
		}
		out = append(out, c)
	}
	return out
}

// command quotes for a shell: a node's name comes from outside.
func command(args ...string) string {
	var b strings.Builder
	b.WriteString("provctl")
	for _, a := range args {
		b.WriteByte(' ')
		b.WriteString(quoted(a))
	}
	return b.String()
}

// quoted is what most words need not be.
func quoted(s string) string {
	plain := func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' || c == '/'
	}
	for i := range len(s) {
		if !plain(s[i]) {
			return shellquote.Join(s)
		}
	}
	if s == "" {
		return "''"
	}
	return s
}
