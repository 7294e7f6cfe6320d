package model

// Fault is a defect that a run puts into the protocol, to see that the check finds it.
type Fault uint8

// The faults. Each is asked for, by n.m.has, at the place where the program would go wrong.
const (
	LateReceipt     Fault = iota + 1 // publishes first and writes the receipt after it
	IgnoreDisk                       // goes on after a failed commit
	NoSync                           // commits are not on the disk when the process dies
	RequeueOpen                      // at start, an open receipt counts as never sent
	RetryUnknown                     // no reply until the horizon counts as never sent
	Unacknowledged                   // no acknowledgement of the broker counts as never sent
	RefusedAnyway                    // any error reply counts as refused before any change
	DropJob                          // at start, interrupted claims are left alone
	NoWriteEpoch                     // the journal takes writes of any epoch
	NoFenceEpoch                     // the fence does not read the epoch on disk
	NoFenceLock                      // the fence does not look at the lock file
	NoFenceJournal                   // the fence does not look whether the journal was replaced
	NoFenceToken                     // the fence does not look for a tombstone
	NoFenceTime                      // the fence does not look at the time left
	SettleRevoked                    // settles although a verdict revoked the token
	SettleOverwrite                  // settles without the transition table
	EarlyVerdicts                    // takes verdicts before the horizon
	KeepKeyRule                      // forgets, where keys are concerned, that a configure exists
	EarlyCounter                     // the counter rule does not wait for the horizon
	NoBarrier                        // sends effects while the node is still busy with an accepted one
	NoLook                           // does not look at the incarnation before an effect
	NeverProve                       // gathers evidence and settles nothing by it
	ForgetHistory                    // asks for the history without the receipts of earlier jobs and claims
	NoTTL                            // nodes take requests of any age
	NoContradiction                  // asks for the history without what was noted after a verdict
	NotIdle                          // takes not-applied for an effect that may still wait in its node
	EarlyIdle                        // has the node show before the horizon that it is idle
	EarlyNewStart                    // a new start counts before the horizon
	SameEpoch                        // starts without raising the epoch
)

// has reports whether the run has a fault.
func (m *Model) has(f Fault) bool { return m.faulty[f] }
