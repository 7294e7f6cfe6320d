package receipt

import (
	"fmt"
	"slices"
	"time"
)

// EvidenceKind says what was observed. Values are stored: append only, never renumber.
type EvidenceKind uint8

// The kinds of evidence.
const (
	SawReply       EvidenceKind = 1 // a reply that came after the worker gave up, or besides the first
	SawEvent       EvidenceKind = 2 // a lifecycle event
	SawStats       EvidenceKind = 3 // rpcutil#daemon_stats
	SawConnections EvidenceKind = 4 // the broker's connection list
	SawIdle        EvidenceKind = 5 // an answer that waits behind everything which the node accepted before
)

var evidenceNames = map[EvidenceKind]string{
	SawReply: "reply", SawEvent: "event", SawStats: "daemon_stats", SawConnections: "connections", SawIdle: "idle",
}

// String is the kind's name in output and in the journal.
func (k EvidenceKind) String() string { return nameOf(evidenceNames, k, "evidence") }

// MarshalText stores the kind by name.
func (k EvidenceKind) MarshalText() ([]byte, error) { return marshalName(evidenceNames, k, "evidence") }

// UnmarshalText reads a kind's name; an unknown one is an error.
func (k *EvidenceKind) UnmarshalText(b []byte) error {
	return unmarshalName(evidenceNames, k, b, "evidence")
}

// Evidence is one observation about an open receipt, with its source and time. Whether it proves anything is for the rules in
// proof.go to say. Exactly the field of its kind is set.
type Evidence struct {
	Kind        EvidenceKind     `json:"kind"`
	Source      string           `json:"source"` // who said so: node, broker, lifecycle event
	At          time.Time        `json:"at"`     // when it reached us, our clock
	Seq         Seq              `json:"seq,omitzero"`
	Reply       *ReplySeen       `json:"reply,omitempty"`
	Event       *EventSeen       `json:"event,omitempty"`
	Stats       *StatsSeen       `json:"stats,omitempty"`
	Connections *ConnectionsSeen `json:"connections,omitempty"`
	Idle        *IdleSeen        `json:"idle,omitempty"`
}

// ReplySeen is a reply to the receipt's request.
type ReplySeen struct {
	Code  int    `json:"code"`
	Text  string `json:"text"`          // bounded by the decoder
	Means Event  `json:"means"`         // as Classify says
	Key   *Key   `json:"key,omitempty"` // of a gen25519
}

// EventSeen is a lifecycle event of the node that reached us after the request was published.
type EventSeen struct {
	Type      string `json:"type"` // provisioned, startup, shutdown, upgraded
	Component string `json:"component"`
	Version   string `json:"version,omitempty"`
	Time      int64  `json:"time"` // unix seconds on the node's clock, for people
}

// positive reports whether the event says that an effect took place.
func (e EventSeen) positive() bool { return e.Type == "provisioned" || e.Type == "upgraded" }

// StatsSeen is an answer of the node's server process, in provisioning mode, since we ask in the provisioning collective.
type StatsSeen struct {
	Incarnation Incarnation `json:"incarnation"`
	Validated   int64       `json:"validated"` // requests that passed validation, this one included
	Known       int64       `json:"known"`     // of those since the receipt's baseline, how many were surely ours: see ByCounter
	Base        BaseID      `json:"base"`      // from which baseline Known was counted
	Epoch       Epoch       `json:"epoch"`     // the worker's term that asked
	Ordinal     uint64      `json:"ordinal"`   // place of the asking request in that term
	Version     string      `json:"version,omitempty"`
}

// ConnectionsSeen is what the broker says of connections under the node's name.
type ConnectionsSeen struct {
	Live       int       `json:"live"`                 // open ones, with whoever else gets the node's requests; 0: the node has none
	LastClosed time.Time `json:"last_closed,omitzero"` // the newest closure, broker's clock; zero if none is known
	Reason     string    `json:"reason,omitempty"`     // of that closure
}

// IdleSeen is an answer of the provision agent to a request that takes its action mutex: nothing that this incarnation accepted before it
// still waits or runs.
type IdleSeen struct {
	Incarnation Incarnation `json:"incarnation"`
}

// String says in one line what was seen, for tables and messages.
func (e Evidence) String() string {
	if e.Check() != nil {
		return e.Kind.String() + " without usable content"
	}
	switch e.Kind {
	case SawReply:
		return fmt.Sprintf("reply code %d %.120q (%s)", e.Reply.Code, e.Reply.Text, e.Reply.Means)
	case SawEvent:
		return fmt.Sprintf("lifecycle event %s of %s", e.Event.Type, e.Event.Component)
	case SawStats:
		return fmt.Sprintf("%s answers, %d requests validated (%d known since the baseline)", e.Stats.Incarnation, e.Stats.Validated, e.Stats.Known)
	case SawConnections:
		if e.Connections.LastClosed.IsZero() {
			return fmt.Sprintf("%d live connections, no closed one known", e.Connections.Live)
		}
		return fmt.Sprintf("%d live connections, last closed %s (%s)", e.Connections.Live, e.Connections.LastClosed.UTC().Format(time.RFC3339), e.Connections.Reason)
	case SawIdle:
		return fmt.Sprintf("%s has done all that it accepted before", e.Idle.Incarnation)
	default:
		return e.Kind.String()
	}
}

// Check reports an observation that does not hold exactly the field of its kind, or a reply that means nothing known.
func (e Evidence) Check() error {
	var c check
	for _, f := range []struct {
		kind EvidenceKind
		set  bool
	}{
		{SawReply, e.Reply != nil}, {SawEvent, e.Event != nil}, {SawStats, e.Stats != nil}, {SawConnections, e.Connections != nil}, {SawIdle, e.Idle != nil},
	} {
		c.must(f.set == (f.kind == e.Kind), "evidence of kind %s: content of kind %s present is %t", e.Kind, f.kind, f.set)
	}
	_, ok := evidenceNames[e.Kind]
	c.must(ok, "evidence of kind %d", e.Kind)
	c.must(c.err != nil || e.Kind != SawReply || slices.Contains(Events(), e.Reply.Means), "evidence of a reply whose meaning is unknown")
	return c.err
}
