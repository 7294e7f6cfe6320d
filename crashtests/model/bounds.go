package model

// Bounds say how far a run goes and what it takes for granted.
type Bounds struct {
	Name     string
	Budget   Budget
	Shutdown bool         // the helper wants the node shut down, not configured
	Upgrade  bool         // the helper wants another version first
	Without  []Assumption // assumptions that this run does not make
}

// Assumption is something that the protocol needs and cannot enforce.
type Assumption uint8

// The assumptions that a run can do without, to show what they are for.
const (
	SteadyWindow Assumption = iota + 1 // see Assumptions
)

// Assumptions says in words what every run takes for granted; those with a number can be left out.
func Assumptions() []string {
	return []string{
		"steady-window: a node that restarts by itself between a worker's look at it and the end of the request's flight does not take " +
			"that request in its next life (docs/design.md, What stays open)",
		"what an operator says is so at that moment: not-applied, it has not run; applied, it has had its effect",
		"a request is delivered once or not at all, and a node drops it after its horizon: clocks agree within the allowed skew",
		"a node's event does not come later than its reply, nor from a life that is over: both come on one connection",
		"a node runs one process, and its answers are true",
		"a commit that returned without an error is on the disk, and a replaced journal is a copy of the moment of its replacement",
	}
}

func (m *Model) assumes(a Assumption) bool {
	for _, w := range m.Bounds.Without {
		if w == a {
			return false
		}
	}
	return true
}

// Within reports whether a budget allows nothing that another does not.
func (b Budget) Within(o Budget) bool {
	return b.Crashes <= o.Crashes && b.Lost <= o.Lost && b.Slow <= o.Slow && b.Steals <= o.Steals && b.Verdicts <= o.Verdicts &&
		b.Odd <= o.Odd && b.Restarts <= o.Restarts && b.Foreign <= o.Foreign && b.Disk <= o.Disk && b.Jobs <= o.Jobs
}

// Runs lists the bounds that together make the quick check: each looks deeply at one kind of trouble.
func Runs() []Bounds {
	return []Bounds{
		{Name: "crashes", Budget: Budget{Jobs: 1, Crashes: 2, Lost: 1, Slow: 1}},
		{Name: "verdicts", Budget: Budget{Jobs: 1, Crashes: 1, Lost: 1, Slow: 1, Verdicts: 2}},
		{Name: "stolen lock", Budget: Budget{Jobs: 1, Steals: 1, Slow: 1}},
		{Name: "stolen lock and verdict", Budget: Budget{Jobs: 2, Steals: 1, Verdicts: 1}},
		{Name: "odd nodes", Budget: Budget{Jobs: 2, Crashes: 1, Odd: 1, Restarts: 1}},
		{Name: "by hand", Budget: Budget{Jobs: 2, Crashes: 1, Odd: 1, Verdicts: 2}},
		{Name: "shutdown", Shutdown: true, Budget: Budget{Jobs: 2, Crashes: 1, Lost: 1, Slow: 1, Restarts: 1}},
		{Name: "upgrade", Upgrade: true, Budget: Budget{Jobs: 3, Crashes: 1, Slow: 1, Lost: 1}},
		{Name: "odd upgrade", Upgrade: true, Budget: Budget{Jobs: 2, Odd: 1, Restarts: 1, Slow: 1}},
		{Name: "noise", Budget: Budget{Jobs: 1, Lost: 1, Slow: 1, Foreign: 1, Restarts: 1, Disk: 1}},
	}
}

// DeepRuns lists bounds that take minutes, for the full tier.
func DeepRuns() []Bounds {
	return []Bounds{
		{Name: "crashes, deep", Budget: Budget{Jobs: 2, Crashes: 2, Lost: 1, Slow: 1, Verdicts: 1}},
		{Name: "stolen lock and crash, deep", Budget: Budget{Jobs: 1, Crashes: 1, Steals: 1, Slow: 1}},
		{Name: "stolen lock, crash and verdict, deep", Budget: Budget{Jobs: 1, Crashes: 1, Steals: 1, Verdicts: 1}},
		{Name: "stolen lock and lost reply, deep", Budget: Budget{Jobs: 2, Steals: 1, Slow: 1, Lost: 1}},
		{Name: "upgrade, deep", Upgrade: true, Budget: Budget{Jobs: 2, Crashes: 1, Lost: 1, Slow: 1, Verdicts: 1, Odd: 1}},
		{Name: "odd nodes, deep", Budget: Budget{Jobs: 2, Crashes: 1, Odd: 1, Restarts: 1, Slow: 1, Verdicts: 1}},
		{Name: "noise, deep", Budget: Budget{Jobs: 1, Crashes: 1, Lost: 1, Foreign: 1, Restarts: 1, Disk: 1}},
	}
}
