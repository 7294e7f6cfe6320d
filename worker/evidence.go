package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"provctl/internal/crashpoint"
	"provctl/receipt"
	"provctl/sequence"
)

// watch is an unknown receipt that is looked at until it is settled.
type watch struct {
	node    receipt.NodeID
	horizon receipt.Horizon
	next    time.Time
	looking bool
	twin    time.Time     // when two servers answered one question about it; zero: never
	one     chan struct{} // holds a token while somebody looks: two looks at a time would count from different baselines
}

// watchFor begins to watch an unknown receipt; its node is looked at at once.
func (w *Worker) watchFor(r receipt.Receipt) {
	w.mu.Lock()
	if w.watches[r.ID] == nil && r.Status == receipt.Unknown {
		w.watches[r.ID] = &watch{node: r.Node, horizon: r.Horizon, next: w.o.Now(), one: make(chan struct{}, 1)}
	}
	w.mu.Unlock()
	wake(w.wakeWatch)
}

func (w *Worker) Unknown() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watches)
}

// watch looks at blocked nodes when something prompts it: the horizon, an event, a reconnect, the timer.
func (w *Worker) watch(ctx context.Context) {
	room := make(chan struct{}, looksAtOnce)
	for {
		w.pulses.watch.work(w.o.Now())
		due, wait := w.due()
		w.pulses.watch.rest() // what follows waits for looks, which are bounded
		for _, id := range due {
			select {
			case room <- struct{}{}:
			case <-ctx.Done():
				return
			}
			w.running.Go(func() {
				defer func() {
					<-room
					wake(w.wakeWatch)
				}()
				defer w.guard("a look at receipt " + string(id))
				w.look(ctx, id)
			})
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-w.wakeWatch:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// due takes the watches whose time has come and says how long until the next one.
func (w *Worker) due() ([]receipt.ReceiptID, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, wait := w.o.Now(), evidenceEvery
	var due []receipt.ReceiptID
	for id, watch := range w.watches {
		switch left := watch.next.Sub(now); {
		case watch.looking:
		case left <= 0:
			watch.looking, watch.next = true, time.Time{}
			due = append(due, id)
		default:
			wait = min(wait, left)
		}
	}
	return due, max(wait, 10*time.Millisecond)
}

// lookAtAll looks at every watched receipt once and returns when that is done.
func (w *Worker) lookAtAll(ctx context.Context) {
	due, _ := w.due()
	room := make(chan struct{}, looksAtOnce)
	var wg sync.WaitGroup
	for _, id := range due {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			defer w.guard("a look at receipt " + string(id))
			w.look(ctx, id)
		})
	}
	wg.Wait()
}

// look gathers evidence on one receipt, settles it if a rule accepts the evidence, and plans the next look.
func (w *Worker) look(ctx context.Context, id receipt.ReceiptID) {
	began := w.o.Now()
	settled, err := w.gather(ctx, id)
	w.mu.Lock()
	if watch := w.watches[id]; watch != nil {
		watch.looking = false
		if watch.next.IsZero() { // else something came up meanwhile that this look may not have seen
			watch.next = nextLook(began, watch.horizon)
		}
		if settled {
			delete(w.watches, id)
		}
	}
	w.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		w.giveUp(fmt.Errorf("look at receipt %s: %w", id, err))
	}
	if settled {
		wake(w.wakeLanes)
	}
}

// nextLook is soon after a moment that lets a rule conclude, else by the timer. A look is of the time when it began: one that lasted
// beyond such a moment has not seen it.
func nextLook(began time.Time, h receipt.Horizon) time.Time {
	for _, at := range []time.Time{h.Time, h.Add(receipt.LeaveSplay)} {
		if at = at.Add(50 * time.Millisecond); began.Before(at) && at.Sub(began) < evidenceEvery {
			return at
		}
	}
	return began.Add(evidenceEvery)
}

// gather asks node and broker, keeps what they say with the receipt, and tries the proof rules. It waits for a look at the same
// receipt that is under way.
func (w *Worker) gather(ctx context.Context, id receipt.ReceiptID) (settled bool, err error) {
	w.mu.Lock()
	watch := w.watches[id]
	w.mu.Unlock()
	if watch != nil {
		select {
		case watch.one <- struct{}{}:
			defer func() { <-watch.one }()
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	r, err := w.j.Receipt(id)
	if err != nil || r.Status != receipt.Unknown {
		return err == nil, err
	}
	began := w.o.Now()
	seen, rebase := w.observe(ctx, r)
	if len(seen) > 0 {
		if r, err = w.j.Note(ctx, id, seen, rebase); err != nil {
			return false, err
		}
		crashpoint.Here(crashpoint.EvidenceKept)
	}
	if !w.aloneSince(id, began) { // either may have answered for the other
		w.log.Warn("nothing is concluded while two servers answer under the name of one node", "node", r.Node, "receipt", r.ID,
			"hint", "give each an identity of its own")
		return false, nil
	}
	if w.o.Manual {
		return false, w.showIdle(ctx, r)
	}
	r, proof, err := w.j.Prove(ctx, id)
	if err == nil && proof == nil {
		return false, w.showIdle(ctx, r)
	}
	if err != nil {
		// Somebody else's verdict may have come first; the next look finds it settled.
		if errors.Is(err, receipt.ErrStale) || errors.Is(err, receipt.ErrIllegalTransition) {
			err = nil
		}
		return false, err
	}
	crashpoint.Here(crashpoint.Proved)
	w.log.Info("settled by evidence", "node", r.Node, "receipt", r.ID, "request", r.Request, "action", r.Action,
		"status", r.Status, "rule", proof.Rule, "why", proof.Why)
	return true, w.followJob(r.Job)
}

func (w *Worker) followJob(id receipt.JobID) error {
	job, err := w.j.Job(id)
	if err != nil {
		return err
	}
	return w.follow(job)
}

// observe asks the node and the broker. What does not answer is no evidence.
func (w *Worker) observe(ctx context.Context, r receipt.Receipt) (seen []receipt.Evidence, rebase *receipt.Baseline) {
	if !w.net.Connected() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, factTimeout)
	defer cancel()
	// What was seen counts from the time of asking: an answer may describe the moment just after it.
	asked := w.o.Now()
	if stats, base, err := w.net.Stats(ctx, r.Node); err == nil {
		if r.Baseline != nil {
			stats.Known, stats.Base = w.net.KnownSince(r.Node, *r.Baseline, stats), r.Baseline.ID()
		}
		seen = append(seen, receipt.Evidence{Kind: receipt.SawStats, Source: "node", At: asked, Stats: &stats})
		// While the request can still arrive "not dispatched so far" only moves the baseline along, so that requests of
		// the time until then cannot blur the count.
		if r.NotDispatched(stats) && !r.Horizon.Passed(asked) {
			rebase = &base
		}
	}
	asked = w.o.Now()
	if conns, err := w.net.Connections(ctx, r.Node, r.RequestTime); err == nil {
		seen = append(seen, receipt.Evidence{Kind: receipt.SawConnections, Source: "broker", At: asked, Connections: &conns})
	}
	return seen, rebase
}

// showIdle has the node show, once per receipt and past its horizon, that it has done all that it accepted: its token is asked for, behind
// its action mutex. What it has on disk then is final. A worker that does not lead, or was replaced, does not ask: the question has the
// node make a new key for secrets, and another worker may just have used the old one.
func (w *Worker) showIdle(ctx context.Context, r receipt.Receipt) error {
	if !r.Horizon.Passed(w.o.Now()) || !r.MayStillRun() || !w.net.Connected() || w.leads() != nil || w.ours() != nil {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, factTimeout)
	defer cancel()
	asked := w.o.Now()
	for range 2 { // a mutex lets a newcomer pass at the very moment of its release, but not twice
		if _, err := w.net.JWT(asking, r.Node); err != nil && !errors.Is(err, sequence.ErrNoToken) {
			return nil
		}
	}
	stats, _, err := w.net.Stats(asking, r.Node)
	if err != nil || stats.Incarnation != r.Incarnation || !w.aloneSince(r.ID, asked) { // else it was that incarnation which answered before
		return nil
	}
	_, err = w.j.Note(ctx, r.ID, []receipt.Evidence{{
		Kind: receipt.SawIdle, Source: "node", At: asked, Idle: &receipt.IdleSeen{Incarnation: r.Incarnation},
	}}, nil)
	return err
}

// lookSoon has a blocked node looked at now.
func (w *Worker) lookSoon(node receipt.NodeID) {
	w.mu.Lock()
	for _, watch := range w.watches {
		if watch.node == node {
			watch.next = w.o.Now()
		}
	}
	w.mu.Unlock()
	wake(w.wakeWatch)
}

// OnReconnect has every blocked node looked at, and work taken up again. It never blocks.
func (w *Worker) OnReconnect() {
	w.reconnects.Add(1)
	w.mu.Lock()
	for _, watch := range w.watches {
		watch.next = w.o.Now()
	}
	w.mu.Unlock()
	wake(w.wakeWatch)
	wake(w.wakeLanes)
}

// OnEvent takes a lifecycle event: evidence if its node has an open receipt, a sighting if it is a server starting in
// provisioning mode. It does not wait for the journal.
func (w *Worker) OnEvent(h Happening) {
	w.mu.Lock()
	// One that tells of an effect can contradict what was decided of it, however long ago.
	interesting := w.busy[h.Node] != nil || h.Seen.Tells(receipt.Configure) || h.Seen.Tells(receipt.ReleaseUpdate)
	for _, watch := range w.watches {
		interesting = interesting || watch.node == h.Node
	}
	w.mu.Unlock()
	if interesting {
		// An event of before the request is no word on it.
		if r, ok := w.receiptOf(h); ok && h.At.After(r.RequestTime) {
			crashpoint.Here(crashpoint.EventHeard)
			w.j.NoteSoon(r.ID, receipt.Evidence{Kind: receipt.SawEvent, Source: "lifecycle event", At: h.At, Event: &h.Seen})
			w.lookSoon(h.Node)
			w.hint(r, h.Seen)
		}
	}
	if h.Seen.Type == "startup" && h.Seen.Component == w.o.Component {
		w.Sight(h.Node, "event", h.At)
	}
}

// hint ends the wait for the reply of an upgrade whose event came: an action that took longer than its agent's timeout ends without one
// (go-choria v0.30.2 server/agents/agents.go:386).
func (w *Worker) hint(r receipt.Receipt, seen receipt.EventSeen) {
	if r.Action != receipt.ReleaseUpdate || seen.Type != "upgraded" || !receipt.SameVersion(seen.Version, r.Target) {
		return
	}
	time.AfterFunc(replyGrace, func() {
		w.mu.Lock()
		enough := w.hints[r.ID]
		w.mu.Unlock()
		if enough != nil {
			enough()
		}
	})
}

// receiptOf finds what an event may be about: the node's open receipt, or else one that was decided not to have begun, which the event may
// contradict.
func (w *Worker) receiptOf(h Happening) (receipt.Receipt, bool) {
	n, err := w.j.Node(h.Node)
	if err != nil {
		return receipt.Receipt{}, false
	}
	if n.Open != "" {
		r, err := w.j.Receipt(n.Open)
		return r, err == nil
	}
	for _, id := range slices.Backward(n.Receipts) {
		if r, err := w.j.Receipt(id); err == nil && r.Status == receipt.NotApplied && h.Seen.Tells(r.Action) {
			return r, true
		}
	}
	return receipt.Receipt{}, false
}

// OnLate takes a reply that nobody waits for: evidence for its receipt, if that is known.
func (w *Worker) OnLate(l Late) {
	w.mu.Lock()
	s, ok := w.requests[l.Request]
	w.mu.Unlock()
	if !ok {
		w.log.Debug("a reply to an unknown request", "node", l.Node, "request", l.Request)
		return
	}
	if s.action.Repeatable() && l.Reply.Code == 0 && l.Reply.Trouble == "" {
		l.Reply.Usable = true // proves that it was done; its key is not kept, since nothing can verify it any more
	}
	means, why := receipt.Classify(s.action, l.Reply)
	w.log.Warn("a late reply is kept as evidence", "node", l.Node, "receipt", s.receipt, "request", l.Request, "means", means, "why", why, "second", l.Second)
	crashpoint.Here(crashpoint.ReplyLate)
	w.j.NoteSoon(s.receipt, receipt.Evidence{
		Kind: receipt.SawReply, Source: "node", At: l.At,
		Reply: &receipt.ReplySeen{Code: l.Reply.Code, Text: l.Reply.Text, Means: means},
	})
	w.lookSoon(l.Node)
}
