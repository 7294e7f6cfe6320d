package inspect

import (
	"fmt"
	"strconv"
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
	out := &Proposal{Rule: p.Rule, Why: p.Why}
	switch p.Event {
	case receipt.ProvedApplied:
		out.Verdict = receipt.VerdictApplied
	case receipt.ProvedRefused, receipt.ProvedNotDone:
		out.Verdict = receipt.VerdictNotApplied
	case receipt.ProvedFailed:
		out.Verdict = receipt.VerdictNotApplied
		if r.Action == receipt.ReleaseUpdate {
			out.Verdict = receipt.VerdictAbandon
		}
		out.Why += " (it may be half done: look at the node; not-applied sends it again, abandon keeps the node out)"
	default: // moot
		out.Verdict = receipt.VerdictAbandon
		if r.Action.Repeatable() {
			out.Verdict = receipt.VerdictNotApplied
		}
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
			"Whether the node answers where its configuration puts it: choria ping -I " + shellquote.Join(string(r.Node)) + ". An answer: applied.",
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
func commands(r receipt.Receipt, dir string) []Command {
	then := map[receipt.Verdict]string{
		receipt.VerdictApplied:    "the job goes on with its next step",
		receipt.VerdictNotApplied: "the job is queued again and sends it once more",
		receipt.VerdictAbandon:    "the job ends; the node stays out until its server is another process or it is admitted by hand",
	}
	if r.Action == receipt.Restart || r.Action == receipt.Shutdown {
		then[receipt.VerdictApplied] = "the job ends as done"
	}
	out := make([]Command, 0, len(then))
	for _, v := range receipt.Verdicts() {
		run := command("reconcile", string(r.ID), "--state-dir", dir, "--seen", strconv.FormatUint(uint64(r.Version), 10), "--verdict", v.String())
		out = append(out, Command{Verdict: v, Run: run + " --reason TEXT", Then: then[v]})
	}
	return out
}

// command quotes for a shell: a node's name comes from outside.
func command(args ...string) string { return "provctl " + shellquote.Join(args...) }
