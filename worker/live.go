package worker

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"provctl/internal/control"
	"provctl/internal/crashpoint"
	"provctl/journal"
	"provctl/receipt"
)

// The methods here are what the control socket serves; see control.Worker.

// Live reports what the journal does not know.
func (w *Worker) Live() control.Live {
	w.mu.Lock()
	net := w.net
	w.mu.Unlock()
	gate, connected := "the worker is starting", false
	if net != nil {
		gate, connected = w.gate(), net.Connected()
	}
	standby := ""
	if err := w.leads(); err != nil {
		standby = err.Error()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	parked := int(w.parked.Load())
	return control.Live{
		Standby: standby,
		PID:     os.Getpid(), Epoch: w.o.Epoch, State: w.state, Connected: connected,
		Lanes: w.o.Lanes, Busy: min(max(0, len(w.busy)-parked), w.o.Lanes), Parked: parked, Queue: w.queue.len(), Gate: gate,
		Started: w.started, Version: w.o.Version,
	}
}

// Snapshot copies what an inspector shows.
func (w *Worker) Snapshot() (journal.Snapshot, error) { return w.j.Snapshot() }

// Decide records a verdict and goes on from it.
func (w *Worker) Decide(ctx context.Context, d journal.Decision) (receipt.Receipt, error) {
	r, err := w.j.Decide(ctx, d)
	if err != nil {
		return r, err
	}
	crashpoint.Here(crashpoint.VerdictTaken)
	decision := r.Decisions[len(r.Decisions)-1]
	w.log.Info("verdict", "node", r.Node, "receipt", r.ID, "action", r.Action, "verdict", decision.Verdict, "by", decision.By, "reason", decision.Reason)
	w.mu.Lock()
	delete(w.watches, r.ID)
	w.mu.Unlock()
	wake(w.wakeLanes)
	if err := w.followNode(r); err != nil { // the verdict stands all the same
		w.giveUp(fmt.Errorf("go on after the verdict on receipt %s: %w", r.ID, err))
	}
	return r, nil
}

// followNode follows the job that a verdict left its node with: the receipt's own, or a new one if that had ended by a former verdict.
func (w *Worker) followNode(r receipt.Receipt) error {
	n, err := w.j.Node(r.Node)
	if err != nil {
		return err
	}
	return w.followJob(cmp.Or(n.Job, r.Job))
}

// Release ends a node's hold: the fleet is asked at once whether it is there.
func (w *Worker) Release(ctx context.Context, node receipt.NodeID, by, reason string) (receipt.Node, error) {
	n, err := w.j.Release(ctx, node, by, reason)
	if err != nil {
		return n, err
	}
	w.log.Info("hold ended", "node", node, "by", by, "reason", reason)
	if n.Job != "" {
		if err := w.followJob(n.Job); err != nil {
			w.giveUp(fmt.Errorf("go on after the release of %s: %w", node, err))
		}
	}
	wake(w.wakeDiscover)
	return n, nil
}

// AdmitByHand takes a node in again that was kept out or held.
func (w *Worker) AdmitByHand(ctx context.Context, node receipt.NodeID, by, reason string) (receipt.Job, error) {
	job, err := w.j.AdmitByHand(ctx, node, by, reason)
	if err != nil {
		return job, err
	}
	w.log.Info("admitted by hand", "node", node, "job", job.ID, "by", by, "reason", reason)
	if job.Status == receipt.Queued { // else it is at work already
		if err := w.follow(job); err != nil {
			w.giveUp(fmt.Errorf("go on after admitting %s: %w", node, err))
		}
	}
	return job, nil
}

// Probe gathers evidence on a receipt now. Unless evidence is manual a proof settles it.
func (w *Worker) Probe(ctx context.Context, id receipt.ReceiptID) (receipt.Receipt, error) {
	w.mu.Lock()
	starting := w.net == nil
	w.mu.Unlock()
	if starting {
		return receipt.Receipt{}, fmt.Errorf("look at receipt %s: the worker is starting; try again in a moment", id)
	}
	settled, err := w.gather(ctx, id)
	if err != nil {
		return receipt.Receipt{}, err
	}
	if settled {
		w.mu.Lock()
		delete(w.watches, id)
		w.mu.Unlock()
		wake(w.wakeLanes)
	}
	return w.j.Receipt(id)
}
