package fleet

import (
	"fmt"
	"net"
	"slices"
	"time"
)

// Call is one request of the provision agent as a Hook sees it.
type Call struct {
	// Seq numbers the calls of the fleet from 1 in the order they arrived.
	Seq   uint64
	Node  string
	PID   int
	Start time.Time
	Boot  int
	// Phase is PhaseBegin or PhaseEnd. At PhaseBegin nothing has run. At PhaseEnd the action has run, its entry is in
	// the node's log, and its reply has not left.
	Phase     Phase
	Action    string
	RequestID string
	Caller    string
	Sender    string
	// Status and Message are those of the reply, at PhaseEnd.
	Status  int
	Message string
}

// held is a request that waits for Release.
type held struct {
	node, action string
	release      chan struct{}
}

// listen accepts nodes until the listener closes.
func (f *Fleet) listen(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		f.wg.Go(func() { f.serve(newLineConn(conn)) })
	}
}

// serve handles one process of one node: a restart comes with a new connection.
func (f *Fleet) serve(c *lineConn) {
	defer c.conn.Close()
	hello, err := c.receive()
	if err != nil || hello.Type != msgHello {
		f.logf("control channel: no greeting: %v", err)
		return
	}
	n, err := f.node(hello.Node)
	if err != nil {
		f.logf("control channel: %v", err)
		return
	}
	gone := make(chan struct{})
	defer close(gone)
	if !f.greet(n, c, hello) {
		return
	}
	defer f.update(func() {
		if n.conn == c {
			n.conn, n.state.Connected, n.state.Joined = nil, false, false
		}
	})
	for {
		m, err := c.receive()
		if err != nil {
			if !isClosed(err) {
				f.logf("%s: %v", n.name, err)
			}
			return
		}
		f.handle(n, c, m, gone)
	}
}

// greet records the process behind a connection; a fleet that is closing takes none.
func (f *Fleet) greet(n *node, c *lineConn, hello message) (ok bool) {
	f.update(func() {
		if ok = !f.closed; !ok {
			return
		}
		n.conn = c
		s := &n.state
		s.Alive, s.Joined, s.Connected, s.Exit = true, false, false, ""
		s.PID, s.Boots, s.Mode, s.Start, s.Version = hello.PID, hello.Boot, hello.Mode, time.Time{}, hello.Version
	})
	return ok
}

func (f *Fleet) handle(n *node, c *lineConn, m message, gone <-chan struct{}) {
	switch m.Type {
	case msgReady:
		f.update(func() {
			if n.conn == c {
				n.state.Joined, n.state.Connected, n.state.Start = true, true, time.Unix(0, m.Start)
			}
		})
	case msgLink:
		f.update(func() {
			if n.conn == c {
				n.state.Connected = m.Up
			}
		})
	case msgCount:
		f.update(func() { n.state.Requests[m.Action]++ })
	case msgNote:
		f.logf("%s: %s", n.name, m.Text)
	case msgBegin, msgResume, msgEnd:
		call := f.record(n, m)
		// Answered aside: a hook may take its time, and a held request must not keep others from being heard.
		f.wg.Go(func() {
			fault := f.decide(call, m.Type, gone)
			if err := c.send(message{Type: msgAnswer, ID: m.ID, Fault: &fault}); err != nil && !isClosed(err) {
				f.logf("%s: answering %s of %s: %v", n.name, m.Type, m.Action, err)
			}
		})
	default:
		f.logf("%s: unknown control message %q", n.name, m.Type)
	}
}

// record counts a call and numbers it.
func (f *Fleet) record(n *node, m message) Call {
	call := Call{
		Node: n.name, Phase: PhaseBegin, Action: m.Action, RequestID: m.RequestID,
		Caller: m.Caller, Sender: m.Sender, Status: NoStatus,
	}
	f.update(func() {
		call.PID, call.Start, call.Boot = n.state.PID, n.state.Start, n.state.Boots
		switch m.Type {
		case msgBegin:
			n.state.Begins[m.Action]++
		case msgEnd:
			n.state.Ends[m.Action]++
			call.Phase, call.Status, call.Message = PhaseEnd, m.Status, m.Text
		}
		if m.Type != msgResume {
			f.calls++
			call.Seq = f.calls
		}
	})
	return call
}

// decide asks the hook, then the faults that were set, and keeps a held request here until it is released.
func (f *Fleet) decide(call Call, kind string, gone <-chan struct{}) Fault {
	if kind == msgResume {
		f.hold(call, gone)
		return Fault{}
	}
	var fault Fault
	if f.opts.Hook != nil && !f.isClosed() {
		fault = f.opts.Hook(call)
	}
	if kind == msgEnd {
		return fault
	}
	if fault.Kind == None {
		fault = f.rules.match(call.Node, call.Action)
	}
	if fault.Kind == Hold && !fault.Detached {
		f.hold(call, gone)
	}
	return fault
}

func (f *Fleet) hold(call Call, gone <-chan struct{}) {
	h := &held{node: call.Node, action: call.Action, release: make(chan struct{})}
	f.update(func() {
		f.held = append(f.held, h)
		f.showHeld(call.Node)
	})
	select {
	case <-h.release:
	case <-gone:
		f.update(func() {
			f.held = slices.DeleteFunc(f.held, func(o *held) bool { return o == h })
			f.showHeld(call.Node)
		})
	}
}

// showHeld renews the list of held actions in a node's state.
func (f *Fleet) showHeld(name string) {
	n := f.nodes[name]
	n.state.Held = nil
	for _, h := range f.held {
		if h.node == name {
			n.state.Held = append(n.state.Held, h.action)
		}
	}
}

// Release lets held requests of that action on that node go on, and tells how many there were; Any stands for all.
// Await them with Wait and NodeState.Held.
func (f *Fleet) Release(node, action string) int {
	count := 0
	f.update(func() {
		var rest, freed []*held
		for _, h := range f.held {
			if fits(node, h.node) && fits(action, h.action) {
				freed = append(freed, h)
			} else {
				rest = append(rest, h)
			}
		}
		f.held, count = rest, len(freed)
		for _, h := range freed {
			close(h.release)
			f.showHeld(h.node)
		}
	})
	return count
}

func (f *Fleet) isClosed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

func (f *Fleet) logf(format string, args ...any) {
	f.logMu.Lock()
	defer f.logMu.Unlock()
	_, _ = fmt.Fprintf(f.opts.Log, "fleet: "+format+"\n", args...)
}
