package model

import (
	"fmt"

	"provctl/receipt"
)

// next is a state in the making.
type next struct {
	State
	m *Model
}

// whose says what the number given to a step is of.
type whose uint8

const (
	world    whose = iota // nothing
	worker                // a worker
	effect                // an effect
	operator              // a verdict
)

// step is one thing that can happen. do checks whether it can, and then changes the state.
type step struct {
	says string
	of   whose
	do   func(n *next, which int) bool
}

// steps lists all that can happen.
var steps = []step{
	{"starts: takes the lock, opens the journal", worker, (*next).start},
	{"raises the epoch", worker, (*next).raise},
	{"recovers from the journal", worker, (*next).recovers},
	{"finds the node and queues a job", worker, (*next).discover},
	{"claims the job", worker, (*next).claim},
	{"meets the node", worker, (*next).meet},
	{"gets the node's token, past its action mutex", worker, (*next).introduce},
	{"looks at the node right before the effect", worker, (*next).look},
	{"gives the pass up: the node does not answer", worker, (*next).miss},
	{"makes the request and begins its receipt", worker, (*next).begin},
	{"gets an error from beginning the receipt; it is not recorded", worker, (*next).beginFails},
	{"gets an error from beginning the receipt; it is recorded", worker, (*next).beginFailsRecorded},
	{"asks the fence", worker, (*next).fence},
	{"publishes", worker, (*next).publish},
	{"has no reply and waits no longer", worker, (*next).giveUpWaiting},
	{"settles", worker, (*next).settles},
	{"asks the blocked node for its stats", worker, (*next).lookAsk},
	{"keeps the evidence and tries the rules", worker, (*next).lookNote},
	{"has the blocked node show that it is idle", worker, (*next).showIdle},
	{"is told to admit the node", worker, (*next).admit},
	{"is killed", worker, (*next).crash},

	{"reaches the node", effect, (*next).accept},
	{"runs", effect, (*next).runWell},
	{"is refused by the node", effect, (*next).runRefused},
	{"fails half way on the node", effect, (*next).runHalf},
	{"fails on the node, its configuration is live", effect, (*next).runLive},
	{"is lost on its way", effect, (*next).loseRequest},
	{"has its reply lost", effect, (*next).loseReply},
	{"has its reply arrive", effect, (*next).replyArrives},
	{"has its event arrive", effect, (*next).eventArrives},
	{"grows older", effect, (*next).timePasses},

	{"the node's splay ends: it restarts or shuts down", world, (*next).leave},
	{"the node's splay ends: its restart comes to nothing", world, (*next).execFails},
	{"the node restarts by itself", world, (*next).restartItself},
	{"the node is back", world, (*next).returns},
	{"the node is back in provisioning mode, unconfigured", world, (*next).returnsAnyway},
	{"somebody else's request reaches the node", world, (*next).disturbs},
	{"the lock file is replaced", world, (*next).stealLock},
	{"the lock file and the journal are replaced by copies", world, (*next).stealJournal},

	{"through the worker", operator, (*next).decide},
	{"on the journal itself", operator, (*next).decideOffline},
	{"instead of the verdict before", operator, (*next).supersede},
}

// Step names one thing that happened.
type Step struct {
	which uint8 // in steps
	who   uint8
}

// numbers is the range of numbers that a kind of step is tried with in a state.
func (o whose) numbers(s *State) (from, to int) {
	switch o {
	case worker:
		return 0, workers
	case effect:
		return 0, s.used()
	case operator:
		return 1, len(receipt.Verdicts()) + 1
	default:
		return 0, 1
	}
}

// each calls f with every state that one step leads to.
func (m *Model) each(s *State, f func(Step, *State)) {
	for k, st := range steps {
		from, to := st.of.numbers(s)
		for who := from; who < to; who++ {
			n := &m.scratch
			n.State, n.m = *s, m
			if st.do(n, who) {
				m.happened[k]++
				n.normalise(!m.has(NoWriteEpoch))
				f(Step{uint8(k), uint8(who)}, &n.State)
			}
		}
	}
}

// text tells the step, taken in a state.
func (st Step) text(s *State) string {
	does := steps[st.which]
	switch does.of {
	case worker:
		return fmt.Sprintf("worker %c %s", 'A'+st.who, does.says)
	case effect:
		return fmt.Sprintf("effect %d (%s) %s", st.who+1, s.Ops[st.who].Action, does.says)
	case operator:
		return fmt.Sprintf("an operator decides %s, %s", verdict(st.who), does.says)
	default:
		return does.says
	}
}
