package model

import (
	"fmt"
	"slices"
	"strings"

	"provctl/receipt"
)

// Trace is the way from the first state to one in which an invariant does not hold.
type Trace struct {
	Broken Invariant
	Steps  []string // what happened, with the state after it
}

// String prints the steps, numbered.
func (t *Trace) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "violated: %s, after %d steps\n", t.Broken, len(t.Steps))
	for i, s := range t.Steps {
		fmt.Fprintf(&b, "%3d. %s\n", i+1, s)
	}
	return b.String()
}

func (v *visited) trace(at uint32, broken Invariant) *Trace {
	t := &Trace{Broken: broken}
	for at != 0 {
		up := v.parent[at]
		t.Steps = append(t.Steps, fmt.Sprintf("%-66s %s", v.by[at].text(v.at(up)), v.at(at).summary()))
		at = up
	}
	slices.Reverse(t.Steps)
	return t
}

func verdict(n uint8) receipt.Verdict { return receipt.Verdict(n) }

var (
	modes  = [...]string{Answers: "answers", Away: "away", Gone: "gone"}
	places = [...]string{Unsent: "unsent", Flying: "flying", Accepted: "accepted", Over: "over"}
	phases = [...]string{Fresh: "fresh", Expired: "expired", Late: "late"}
)

// summary is a state in one line.
func (s *State) summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| life %d %s, key %d, conf %d | ", s.Node.Inc, modes[s.Node.Mode], s.Node.Key, s.Node.Conf)
	if s.Job.Status == 0 {
		b.WriteString("no job")
	} else {
		fmt.Fprintf(&b, "job %s", s.Job.Status)
	}
	fmt.Fprintf(&b, ", epoch %d", s.Epoch)
	for i := range s.used() {
		o := &s.Ops[i]
		status := "no receipt"
		if o.Status != 0 {
			status = o.Status.String()
		}
		fmt.Fprintf(&b, " | %d %s in life %d: %s", i+1, o.Action, o.Inc, status)
		if o.Wire != Over {
			fmt.Fprintf(&b, ", %s, %s", places[o.Wire], phases[o.Phase])
		}
	}
	return b.String()
}
