package model

import "provctl/receipt"

// This file mirrors worker/evidence.go: looks at a blocked node.

// lookAsk asks a blocked node for its daemon_stats: the first half of worker.(*Worker).observe.
func (n *next) lookAsk(w int) bool {
	me := &n.Workers[w]
	o := n.open()
	if me.PC != Idle || me.Orphan || me.Look != 0 || o == nil || o.Status != receipt.Unknown {
		return false
	}
	me.Look, me.Saw = n.Open, Obs{}
	if n.Node.Mode == Answers {
		me.Saw = Obs{Kind: receipt.SawStats, Phase: o.Phase, Inc: n.Node.Inc, Excess: n.Meter.Excess, Latest: n.Node.Latest}
		n.asks(w)
	}
	return true
}

// lookNote asks the broker for connections, keeps what was seen, and tries the rules: the second half of observe,
// journal.(*Journal).Note and Prove.
func (n *next) lookNote(w int) bool {
	me := &n.Workers[w]
	if me.Look == 0 {
		return false
	}
	i, saw := int(me.Look)-1, me.Saw
	me.Look, me.Saw = 0, Obs{}
	if n.Ops[i].Status != receipt.Unknown {
		return true
	}
	if me.Orphan || !n.write(w) {
		return true
	}
	before := n.receipt(i)
	if saw.Kind != 0 {
		n.note(saw)
	}
	conns := Obs{Kind: receipt.SawConnections, Phase: n.Ops[i].Phase, Closed: n.Node.Closed}
	if n.Node.Mode == Answers {
		conns.Live = 1
	}
	n.note(conns)
	if e := saw.evidence(0); saw.Kind != 0 && !horizon.Passed(e.At) && before.NotDispatched(*e.Stats) {
		n.rebase()
	}
	n.prove(i)
	return true
}

// showIdle asks the node for its token, behind its action mutex, and then once more for its stats: worker.(*Worker).showIdle. It is one
// step: once the node can accept the request no longer, a life that was idle stays so.
func (n *next) showIdle(w int) bool {
	me := &n.Workers[w]
	o := n.open()
	if me.PC != Idle || me.Orphan || me.Look != 0 || o == nil || o.Status != receipt.Unknown || n.Node.Mode != Answers || n.busy() {
		return false
	}
	seen := Obs{Kind: receipt.SawIdle, Phase: o.Phase, Inc: n.Node.Inc}
	if n.m.has(EarlyIdle) {
		seen.Phase = max(seen.Phase, Expired)
	}
	if seen.Inc != o.Inc || !horizon.Passed(now(seen.Phase)) || !n.receipt(int(n.Open)-1).MayStillRun() {
		return false
	}
	n.asks(w)
	if n.write(w) {
		n.note(seen)
	}
	return true
}

// rebase moves the baseline to the answer just seen, which showed that the request had not been dispatched: movesBaseline in
// journal/verdict.go. What was validated since is in excess already.
func (n *next) rebase() {
	n.Meter.Asked = false
	for k := range n.Seen {
		if n.Seen[k].Kind == receipt.SawStats {
			n.Seen[k].Former = true
		}
	}
}

// prove tries the real rules: journal.(*Journal).Prove.
func (n *next) prove(i int) {
	if n.m.has(NeverProve) {
		return
	}
	o := &n.Ops[i]
	r, phase := n.receipt(i), o.Phase
	if n.m.has(EarlyCounter) {
		phase = max(phase, Expired)
		for k, e := range r.Evidence {
			if !horizon.Passed(e.At) {
				r.Evidence[k].At = at(Expired, k)
			}
		}
	}
	p, ok := receipt.Prove(r, n.history(o.Inc), now(phase))
	if !ok && n.m.has(EarlyNewStart) {
		p, ok = receipt.ByNewIncarnation(r, n.history(o.Inc), now(Expired))
		p.Rule = receipt.RuleNewStart
	}
	if ok {
		n.m.proved[p.Rule]++
		step, result, told := afterProof(r, p)
		n.resolve(i, p.Event, step, result, told)
	}
}
