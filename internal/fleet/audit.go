package fleet

import "fmt"

// Audit is what the nodes' own effect logs say happened. It knows nothing of any journal.
type Audit struct {
	// Effects counts the effects that the agents were given.
	Effects int
	// Twice lists effects that ran although an earlier one of the same incarnation may already have had that effect, keys
	// made after a configure, and requests that ran more than once. Keys may be made again before a configure: that is
	// not listed.
	Twice []Repeat
	// Incarnations and Provisioned count server instances, and nodes that joined with a configuration of their own.
	Incarnations int
	Provisioned  map[string]bool
	// Down are nodes whose last successful effect was a shutdown.
	Down map[string]bool
}

// Repeat is an effect that ran once too often.
type Repeat struct {
	Node, Action, RequestID, Earlier string
	Why                              string
}

// String says which, for messages.
func (r Repeat) String() string {
	return fmt.Sprintf("%s: %s in request %s although %s (request %s)", r.Node, r.Action, r.RequestID, r.Why, r.Earlier)
}

// Audit reads all effect logs.
func (f *Fleet) Audit() (Audit, error) {
	entries, err := f.Entries()
	if err != nil {
		return Audit{}, err
	}
	return AuditEntries(entries), nil
}

type life struct {
	node  string
	pid   int
	start int64
}

// ran is an effect that began in one life of a node; status is NoStatus until it ended.
type ran struct {
	action, request string
	status          int
}

// AuditEntries judges entries in the order in which each node wrote them.
func AuditEntries(entries []Entry) Audit {
	a := Audit{Provisioned: map[string]bool{}, Down: map[string]bool{}}
	lives := map[life][]ran{}
	requests := map[string]bool{}
	for _, e := range entries {
		l := life{e.Node, e.PID, e.Start}
		switch {
		case e.Phase == PhaseJoined:
			a.Incarnations++
			if e.Mode == Provisioned {
				a.Provisioned[e.Node] = true
			}
		case e.Phase == PhaseBegin && e.Effect:
			a.Effects++
			if requests[e.Node+e.RequestID] {
				a.Twice = append(a.Twice, Repeat{e.Node, e.Action, e.RequestID, e.RequestID, "this very request ran before"})
			}
			requests[e.Node+e.RequestID] = true
			if earlier, why := forbids(lives[l], e.Action); why != "" {
				a.Twice = append(a.Twice, Repeat{e.Node, e.Action, e.RequestID, earlier, why})
			}
			lives[l] = append(lives[l], ran{e.Action, e.RequestID, NoStatus})
		case e.Phase == PhaseEnd && e.Effect:
			for i := range lives[l] {
				if lives[l][i].request == e.RequestID {
					lives[l][i].status = e.Status
				}
			}
			if e.Action == "shutdown" && e.Status == 0 {
				a.Down[e.Node] = true
			}
		}
	}
	return a
}

// forbids finds an earlier effect that the action must not follow: the same one, unless the node said that it failed, and for
// key generation any configure.
func forbids(before []ran, action string) (request, why string) {
	keys := action == "gen25519" || action == "gencsr"
	for _, r := range before {
		mayHaveRun := r.status == 0 || r.status == NoStatus
		switch {
		case keys && r.action == "configure" && mayHaveRun:
			return r.request, "the node was configured with its former key"
		case !keys && r.action == action && mayHaveRun:
			return r.request, "it ran before"
		}
	}
	return "", ""
}
