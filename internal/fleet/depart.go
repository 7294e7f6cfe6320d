package fleet

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/choria-io/go-choria/lifecycle"
	"github.com/choria-io/go-choria/server/agents"
	"github.com/sirupsen/logrus"
)

// replyGrace is how long the reply of a restart or shutdown may take to leave before the shortened splay begins. The
// real splay of a restart is at least as long.
const replyGrace = 2 * time.Second

// noReply says that a departing node need not wait for its reply: it has left, or never will.
const noReply = -1

// departure is the way of a node out of its process.
type departure struct {
	// begun allows one departure at a time, as go-choria does
	// (providers/agent/mcorpc/golang/provision/restart_action.go:88).
	begun atomic.Bool
	// dealt gets, once the reply was handed over, how many replies the server had sent before it; or noReply.
	dealt chan int64
}

func newDeparture() *departure { return &departure{dealt: make(chan int64, 1)} }

// dealt tells a departing node that the reply to the request that sends it away is dealt with.
func (w *watcher) dealt(c *call, sent int64) {
	if !c.leaves {
		return
	}
	select {
	case w.node.departs.dealt <- sent:
	default:
	}
}

// restart is go-choria's restart with the fleet's splay: a shutdown event, the splay, exec with the same arguments.
func (n *nodeProcess) restart(_ time.Duration, si agents.ServerInfoSource, log *logrus.Entry) {
	if !n.departs.begun.CompareAndSwap(false, true) {
		return
	}
	if err := si.NewEvent(lifecycle.Shutdown); err != nil {
		log.Errorf("Could not publish the shutdown event: %v", err)
	}
	n.splay(si)
	// The incarnation is (pid, second of the start): the next start must not fall into the same second.
	time.Sleep(time.Until(n.start.Truncate(time.Second).Add(time.Second)))
	if err := syscall.Exec(os.Args[0], os.Args, os.Environ()); err != nil {
		n.note("restart: %s cannot be executed: %v", os.Args[0], err)
		n.departs.begun.Store(false)
		n.turn.giveBack()
	}
}

// shutdown is go-choria's shutdown with the fleet's splay.
func (n *nodeProcess) shutdown(_ time.Duration, si agents.ServerInfoSource, log *logrus.Entry) {
	if !n.departs.begun.CompareAndSwap(false, true) {
		return
	}
	n.splay(si)
	if err := si.PrepareForShutdown(); err != nil {
		log.Errorf("Could not prepare for the shutdown: %v", err)
	}
	os.Exit(0)
}

// splay lets the reply leave, which the real splay's length does, and then waits.
func (n *nodeProcess) splay(si agents.ServerInfoSource) {
	sent := <-n.departs.dealt
	for end := time.Now().Add(replyGrace); sent != noReply && si.Stats().Replies <= sent && time.Now().Before(end); {
		time.Sleep(2 * time.Millisecond)
	}
	time.Sleep(n.spec.Splay)
}
