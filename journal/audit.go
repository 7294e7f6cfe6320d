package journal

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"provctl/receipt"
)

// Deed says what a person did. Values are stored: append only, never rename.
type Deed string

// What a person can do to a journal.
const (
	DidVerdict Deed = "verdict" // gave a verdict on a receipt
	DidAdmit   Deed = "admit"   // queued a node by hand
	DidRelease Deed = "release" // ended a node's hold
	DidPause   Deed = "pause"
	DidResume  Deed = "resume"
	DidAccept  Deed = "accept" // went on with a lost or older journal
)

// Act is one deed as the audit trail keeps it. Acts are only ever added: neither retention nor a later verdict removes or changes one.
type Act struct {
	Seq         receipt.Seq       `json:"seq"`
	At          time.Time         `json:"at"` // wall clock
	Did         Deed              `json:"did"`
	By          string            `json:"by"` // who, as the system knows it
	Reason      string            `json:"reason,omitempty"`
	Node        receipt.NodeID    `json:"node,omitempty"`
	Job         receipt.JobID     `json:"job,omitempty"`
	Receipt     receipt.ReceiptID `json:"receipt,omitempty"`
	Action      receipt.Action    `json:"action,omitzero"`
	Verdict     receipt.Verdict   `json:"verdict,omitzero"`
	Seen        receipt.Seq       `json:"seen,omitzero"`         // the version that was decided on
	Saw         []string          `json:"saw,omitempty"`         // the evidence that the receipt had then, in words
	Evidence    string            `json:"evidence,omitempty"`    // what the operator saw beyond it, in his words
	Contradicts string            `json:"contradicts,omitempty"` // what evidence concluded instead, if it did
	Supersedes  receipt.Seq       `json:"supersedes,omitzero"`   // the act that this one takes back
	Result      string            `json:"result,omitempty"`      // what became of it, in words
}

// auditKey orders acts by their sequence number.
func auditKey(seq receipt.Seq) string { return string(binary.BigEndian.AppendUint64(nil, uint64(seq))) }

// enter adds an act to the audit trail, under the last sequence number of the change if it does not carry one of it.
func (s *stage) enter(a Act) error {
	if a.Seq == 0 {
		a.Seq = s.meta.Seq
	}
	a.At = s.now
	a.By, a.Reason, a.Evidence, a.Contradicts, a.Result = clip(a.By), clip(a.Reason), clip(a.Evidence), clip(a.Contradicts), clip(a.Result)
	key := auditKey(a.Seq)
	if err := s.fresh(auditBucket, key); err != nil {
		return err
	}
	b, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("audit record: %w", err)
	}
	s.put(auditBucket, key, sealed(auditBucket, key, b))
	return nil
}

// Audit lists the acts of people in sequence order, from one with at least the given number on. It reads only.
func (j *Journal) Audit(from receipt.Seq) ([]Act, error) {
	var out []Act
	err := j.view(func(s *store) (err error) {
		out, err = s.acts(from)
		return err
	})
	return out, err
}

func (s *store) acts(from receipt.Seq) ([]Act, error) {
	b := s.tx.Bucket([]byte(auditBucket))
	if b == nil {
		return nil, nil // of a format that had no audit trail
	}
	var out []Act
	c := b.Cursor()
	for k, v := c.Seek([]byte(auditKey(from))); k != nil; k, v = c.Next() {
		a, err := readAct(string(k), v)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

func readAct(key string, v []byte) (Act, error) {
	var a Act
	content, err := unsealed(auditBucket, key, v)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(content, &a, json.RejectUnknownMembers(true)); err != nil {
		return a, fmt.Errorf("%w: %s/%x: %w", receipt.ErrDamaged, auditBucket, key, err)
	}
	if auditKey(a.Seq) != key {
		return a, fmt.Errorf("%w: %s/%x holds act %d", receipt.ErrDamaged, auditBucket, key, a.Seq)
	}
	return a, nil
}
