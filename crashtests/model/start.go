package model

import "provctl/receipt"

// This file is the life of worker processes: start, crash, the lock.

// start takes the lock and opens the journal. The second worker starts only beside the first: without it they are the same.
func (n *next) start(w int) bool {
	if n.Workers[w].PC != Down || n.Lock != 0 || w > 0 && n.Workers[0].PC == Down {
		return false
	}
	n.Workers[w] = Worker{PC: Locked}
	n.Lock = uint8(w + 1)
	return true
}

// raise begins the worker's term.
func (n *next) raise(w int) bool {
	me := &n.Workers[w]
	if me.PC != Locked {
		return false
	}
	if me.Orphan { // its copy is of no consequence
		n.giveUp(w)
		return true
	}
	me.Epoch, me.PC = n.raiseEpoch(), Raised
	return true
}

// recovers settles what the journal alone tells, and takes up work.
func (n *next) recovers(w int) bool {
	me := &n.Workers[w]
	if me.PC != Raised {
		return false
	}
	if me.Orphan || n.write(w) {
		me.PC = Idle
		if !me.Orphan {
			n.recoverJob(me.Epoch)
		}
	}
	return true
}

// giveUp ends a worker that may not go on. The kernel frees its lock.
func (n *next) giveUp(w int) {
	n.Workers[w] = Worker{}
	if int(n.Lock) == w+1 {
		n.Lock = 0
	}
}

// crash kills a worker.
func (n *next) crash(w int) bool {
	me := n.Workers[w]
	if me.PC == Down || !take(&n.Left.Crashes) {
		return false
	}
	if n.m.has(NoSync) && me.Op != 0 && n.Ops[me.Op-1].Status == receipt.Pending {
		n.Ops[me.Op-1].Status, n.Open, n.Job.Begun = 0, 0, false
	}
	n.giveUp(w)
	return true
}

// stealLock replaces the lock file while a worker holds it. The journal stays, and even its own lock keeps nobody out.
func (n *next) stealLock(int) bool {
	if n.Lock == 0 || !take(&n.Left.Steals) {
		return false
	}
	n.Lock = 0
	return true
}

// stealJournal replaces the journal by a copy as well.
func (n *next) stealJournal(int) bool {
	w := int(n.Lock) - 1
	if !n.stealLock(0) {
		return false
	}
	n.Workers[w].Orphan = true
	return true
}

// discover finds the node in provisioning mode and admits it: journal.(*Journal).Admit. Holds may end at any time and are left out.
func (n *next) discover(w int) bool {
	me := n.Workers[w]
	if me.PC != Idle || me.Orphan || n.Node.Mode != Answers || n.Job.Status != 0 && n.Job.Status != receipt.Ended {
		return false
	}
	if n.Out && n.OutOf == 0 { // journal.(*Journal).Return: the first life seen counts as the one it went out with
		if n.write(w) {
			n.OutOf = n.Node.Inc
		}
		return true
	}
	if n.Out && n.OutOf == n.Node.Inc || !take(&n.Left.Jobs) {
		return false
	}
	if n.write(w) {
		n.Out, n.OutOf = false, 0
		n.Job = Job{Status: receipt.Queued}
	}
	return true
}
