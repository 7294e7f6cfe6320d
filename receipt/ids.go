package receipt

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

type (
	// JobID names a job: a ULID.
	JobID string
	// ReceiptID names a receipt: a ULID.
	ReceiptID string
	// RequestID names one request on the wire; it is chosen before the receipt is written.
	RequestID string
	// Token is a receipt's operation token: a verdict revokes it, and a revoked token neither publishes nor settles.
	Token string
	// NodeID is the identity of a Choria server.
	NodeID string
	// Epoch numbers a worker's term; it is raised durably at each start, so 0 is no worker's.
	Epoch uint64
	// Seq orders all that the journal records. It rises with every change and is never reused.
	Seq uint64
)

// maxNodeID is the longest identity accepted, in bytes: a host name has 253 at most.
const maxNodeID = 255

// ParseNodeID checks an identity that came from outside. It must be usable as part of a NATS subject without changing the
// subject's meaning: printable ASCII without white space, no wildcard, no empty part between dots, at most 255 bytes.
func ParseNodeID(s string) (NodeID, error) {
	bad := func(why string) (NodeID, error) {
		return "", fmt.Errorf("node identity %.80q: %w: %s", s, ErrInvalid, why)
	}
	switch {
	case s == "":
		return bad("it is empty")
	case len(s) > maxNodeID:
		return bad("it is longer than 255 bytes")
	case !utf8.ValidString(s):
		return bad("it is not valid UTF-8")
	case strings.HasPrefix(s, "."), strings.HasSuffix(s, "."), strings.Contains(s, ".."):
		return bad("it has an empty part between dots")
	}
	for _, r := range s {
		if r <= ' ' || r == 0x7f || r == '*' || r == '>' || r > 0x7f {
			return bad(fmt.Sprintf("character %q is not allowed", r))
		}
	}
	return NodeID(s), nil
}

// Incarnation is one life of a node's server process, as rpcutil#daemon_stats reports it. An exec keeps the pid and resets
// the start time, so both are needed. The zero value means not known.
type Incarnation struct {
	PID   int64 `json:"pid"`
	Start int64 `json:"start"` // unix seconds on the node's clock
}

// Known reports whether the incarnation was observed at all.
func (i Incarnation) Known() bool { return i.PID > 0 && i.Start > 0 }

// String prints pid and start time for people.
func (i Incarnation) String() string {
	if !i.Known() {
		return "unknown incarnation"
	}
	return fmt.Sprintf("pid %d since %s", i.PID, time.Unix(i.Start, 0).UTC().Format(time.RFC3339))
}

// Horizon is the moment after which a request can no longer be accepted by its node.
type Horizon struct{ time.Time }

// HorizonOf computes the horizon of a request made at the given time: request time + TTL + clock skew.
func HorizonOf(request time.Time, ttl, skew time.Duration) Horizon {
	return Horizon{request.Add(ttl + skew).Round(0).UTC()}
}

// Passed reports whether the horizon is behind now.
func (h Horizon) Passed(now time.Time) bool { return now.After(h.Time) }

// Left is how long the horizon is still ahead; 0 once it has passed.
func (h Horizon) Left(now time.Time) time.Duration { return max(0, h.Sub(now)) }
