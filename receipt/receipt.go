package receipt

import "time"

// Receipt is the durable record of one effect, written before its request can leave. It carries no payload and no secret: a
// digest names the payload.
type Receipt struct {
	ID          ReceiptID   `json:"id"`
	Seq         Seq         `json:"seq"`     // when it was written
	Version     Seq         `json:"version"` // when it last changed: what a compare-and-set compares
	Job         JobID       `json:"job"`
	ClaimNo     int         `json:"claim"`
	Epoch       Epoch       `json:"epoch"`
	Node        NodeID      `json:"node"`
	Incarnation Incarnation `json:"incarnation"`
	Action      Action      `json:"action"`
	Request     RequestID   `json:"request"`
	RequestTime time.Time   `json:"request_time"` // when the TTL clock started, our clock
	Horizon     Horizon     `json:"horizon"`
	Digest      string      `json:"digest"`           // SHA-256 of the payload, hex
	Target      string      `json:"target,omitempty"` // the version that a release_update asked for
	Token       Token       `json:"token"`
	Status      Status      `json:"status"`
	Why         string      `json:"why,omitempty"`     // the reason of the last change, for people
	Settled     string      `json:"settled,omitempty"` // by what it was settled: reply, evidence rule or verdict
	Key         *Key        `json:"key,omitempty"`
	Baseline    *Baseline   `json:"baseline,omitempty"`
	Evidence    []Evidence  `json:"evidence,omitempty"`
	Decisions   []Decision  `json:"decisions,omitempty"`
	EndedAt     time.Time   `json:"ended_at,omitzero"` // wall clock
}

// Key is what a reply to key generation gave that later steps need. It is public: the private half never leaves the node.
type Key struct {
	Public    string `json:"public"`              // gen25519: 64 hex digits; gencsr: PEM
	Directory string `json:"directory"`           // on the node
	Signature string `json:"signature,omitempty"` // gen25519: 128 hex digits over the nonce of that request; already verified
	CSR       string `json:"csr,omitempty"`       // gencsr: PEM
}

// Baseline is the node's request counter before the effect left; see ByCounter.
type Baseline struct {
	Validated int64  `json:"validated"` // rpcutil#daemon_stats validated, the asking request included
	Epoch     Epoch  `json:"epoch"`     // the worker's term that asked
	Ordinal   uint64 `json:"ordinal"`   // place of the asking request among all of that term; others of a later term all come after
}

// ID names the baseline: no two of one receipt have the same.
func (b Baseline) ID() BaseID { return BaseID{Epoch: b.Epoch, Ordinal: b.Ordinal} }

// BaseID names a baseline.
type BaseID struct {
	Epoch   Epoch  `json:"epoch,omitzero"`
	Ordinal uint64 `json:"ordinal,omitzero"`
}

// Decision is an operator's verdict as recorded: append-only.
type Decision struct {
	Verdict Verdict   `json:"verdict"`
	By      string    `json:"by"`     // who, as the system knows it
	Reason  string    `json:"reason"` // why, in the operator's words
	At      time.Time `json:"at"`     // wall clock
	Seq     Seq       `json:"seq"`
	Seen    Seq       `json:"seen"` // the version that was decided on

	Evidence    string `json:"evidence,omitempty"`    // what the operator saw beyond what the receipt holds, in his words
	Contradicts string `json:"contradicts,omitempty"` // what evidence concluded instead, if it did
	Supersedes  Seq    `json:"supersedes,omitzero"`   // the verdict that this one takes back
}

// Node is what the journal remembers of a node beyond any job.
type Node struct {
	ID          NodeID      `json:"id"`
	Version     Seq         `json:"version"`
	Job         JobID       `json:"job,omitempty"`        // the one that has not ended
	Open        ReceiptID   `json:"open,omitempty"`       // the one open receipt
	Incarnation Incarnation `json:"incarnation,omitzero"` // last known
	Receipts    []ReceiptID `json:"receipts,omitempty"`   // of that incarnation, in sequence order
	HeldUntil   time.Time   `json:"held_until,omitzero"`  // not taken before; wall clock
	HeldWhy     string      `json:"held_why,omitempty"`   // why it is held or out
	Forgiven    Seq         `json:"forgiven,omitzero"`    // admitted by hand then: what failed or was abandoned before does not count
	Out         Result      `json:"out,omitzero"`         // Exhausted or GivenUp: not taken at all
	OutOf       Incarnation `json:"out_of,omitzero"`      // ... while this incarnation lasts
	LastResult  Result      `json:"last_result,omitzero"`
	LastEnded   time.Time   `json:"last_ended,omitzero"`
}
