package fleet

import (
	"encoding/json"
	"sync"
	"time"
)

// Kind says what a Fault does.
type Kind int

// The kinds of faults. The zero value is no fault.
const (
	None Kind = iota
	// Drop runs the action and never replies.
	Drop
	// Delay runs the action and replies after Fault.Delay, past the agent's 20 s too.
	Delay
	// Duplicate runs the action and replies Fault.Copies more times (0 means once more).
	Duplicate
	// Answer replies with Fault.Code, Text and Data and does not run the action.
	Answer
	// Alter runs the action and replies as Fault.Alter says.
	Alter
	// Hold keeps the request until Release. It holds the node's action mutex, as a long download does, so that later
	// requests queue behind it; with Fault.Detached it waits as if still on the network, and its TTL is checked at
	// release as the node would have done on arrival.
	Hold
	// DieBefore kills the node's process before the action runs.
	DieBefore
	// DieAfter kills the node's process after the action, before its reply leaves.
	DieAfter
)

var kindNames = []string{"none", "drop", "delay", "duplicate", "answer", "alter", "hold", "die-before", "die-after"}

// String names the kind as effect logs do.
func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return "unknown"
	}
	return kindNames[k]
}

// Any stands for every node or every action in SetFault and Release.
const Any = "*"

// Fault is one deviation from a healthy node. The zero value is none.
type Fault struct {
	Kind Kind `json:"kind"`
	// Times is how many requests it befalls: 0 means one, a negative number all.
	Times int `json:"-"`
	// Skip lets that many matching requests pass first.
	Skip int `json:"-"`
	// Delay is how long the reply of a Delay waits.
	Delay time.Duration `json:"delay,omitempty"`
	// Copies is how many more replies a Duplicate sends; 0 means one.
	Copies int `json:"copies,omitempty"`
	// Code, Text and Data make the reply of an Answer: the RPC status code, its message and its data.
	Code int             `json:"code,omitempty"`
	Text string          `json:"text,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
	// Alter says how an Alter changes the reply.
	Alter Alteration `json:"alter"`
	// Detached makes a Hold wait outside the node's action mutex.
	Detached bool `json:"detached,omitempty"`
}

// Alteration changes a reply on its way. Zero fields leave their part as it is.
type Alteration struct {
	// Wire replaces all that is published, envelope included; empty but not nil publishes nothing at all as payload.
	Wire []byte `json:"wire"`
	// Body replaces the RPC reply inside a correct envelope; empty but not nil empties it.
	Body []byte `json:"body"`
	// RequestID and Sender replace those of the envelope.
	RequestID string `json:"request_id,omitempty"`
	Sender    string `json:"sender,omitempty"`
}

// BodyReply is a Fault that replaces the RPC reply inside a correct envelope: for missing or mistyped fields.
func BodyReply(body string) Fault { return Fault{Kind: Alter, Alter: Alteration{Body: []byte(body)}} }

// WireReply is a Fault that publishes exactly these bytes as the reply: garbage, or nothing.
func WireReply(wire []byte) Fault {
	if wire == nil {
		wire = []byte{}
	}
	return Fault{Kind: Alter, Alter: Alteration{Wire: wire}}
}

// HugeReply is a Fault that pads the RPC reply's message to size bytes. The broker takes about 400 KiB of it: what
// Choria wraps around grows it by more than two, and NATS refuses payloads over 1 MiB.
func HugeReply(size int) Fault {
	text := make([]byte, max(size, 0))
	for i := range text {
		text[i] = 'x'
	}
	body, err := json.Marshal(map[string]any{"statuscode": 0, "statusmsg": string(text), "data": map[string]any{}})
	if err != nil {
		body = []byte("{}")
	}
	return Fault{Kind: Alter, Alter: Alteration{Body: body}}
}

// rule is a Fault waiting for its requests.
type rule struct {
	node, action string
	fault        Fault
}

// rules are the faults set by SetFault, oldest first.
type rules struct {
	mu   sync.Mutex
	list []*rule
}

func (r *rules) add(node, action string, f Fault) {
	if f.Times == 0 {
		f.Times = 1
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, &rule{node: node, action: action, fault: f})
}

func (r *rules) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = nil
}

// match takes the first rule that fits and uses it up by one request.
func (r *rules) match(node, action string) Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.list {
		if !fits(c.node, node) || !fits(c.action, action) || c.fault.Times == 0 {
			continue
		}
		if c.fault.Skip > 0 {
			c.fault.Skip--
			continue
		}
		if c.fault.Times > 0 {
			c.fault.Times--
		}
		return c.fault
	}
	return Fault{}
}

func fits(pattern, value string) bool { return pattern == Any || pattern == value }

// SetFault befalls the next Times requests of that action on that node; Any stands for all of them. Faults set earlier
// come first; one request gets one fault.
func (f *Fleet) SetFault(node, action string, fault Fault) { f.rules.add(node, action, fault) }

// ClearFaults forgets every fault that has not come to pass. Requests already held stay held.
func (f *Fleet) ClearFaults() { f.rules.clear() }
