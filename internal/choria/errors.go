package choria

import (
	"errors"
	"fmt"

	"provctl/receipt"
)

var (
	// ErrConfig is returned by New for a Choria configuration that cannot be used.
	ErrConfig = errors.New("choria configuration")
	// ErrNotConnected is returned when the broker connection is down at the moment of asking, or breaks while a fact is in flight.
	ErrNotConnected = errors.New("not connected to the broker")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("the engine is closed")
	// ErrBusy is returned for a fact whose node had another request under way for as long as it could wait; by Stats at once if
	// that is an effect. Nothing was sent; ask again when the effect has its outcome.
	ErrBusy = errors.New("the node is busy with another request of ours")
	// ErrNobody is returned when the broker had nobody to deliver a fact request to: the node is absent now.
	ErrNobody = errors.New("nobody is subscribed under this identity")
	// ErrNoReply is returned when a fact request had no usable reply in time.
	ErrNoReply = errors.New("no reply in time")
	// ErrBadReply is returned when the reply to a fact cannot be decoded or lacks what was asked for.
	ErrBadReply = errors.New("unusable reply")
	// ErrNotAFact is returned when something that changes a node is asked for as a fact. It is a programming error.
	ErrNotAFact = errors.New("not a fact")
	// ErrMisuse is returned when a request and its receipt do not belong together, or an input is of the wrong type. It is a
	// programming error: nothing was sent by that call, but it says nothing about earlier ones.
	ErrMisuse = errors.New("misuse")
	// ErrNoConnectionList is returned when the broker's servers do not tell their connections, or not so that all are known: no
	// server answers, one falls silent half way, or there are more than can be listed.
	ErrNoConnectionList = errors.New("no connection list from the broker")
)

// NotSentError says that an effect was provably not published: nothing of it left this process, and its node never saw it.
type NotSentError struct {
	Node    receipt.NodeID
	Action  receipt.Action
	Request receipt.RequestID
	Why     string
	Err     error // the cause, or nil
}

// Error names the effect, the node and the reason.
func (e *NotSentError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%s on %s (request %s) was not sent: %s", e.Action, e.Node, e.Request, e.Why)
	}
	return fmt.Sprintf("%s on %s (request %s) was not sent: %s: %v", e.Action, e.Node, e.Request, e.Why, e.Err)
}

// Unwrap gives the cause: receipt.ErrFenced if the fence refused.
func (e *NotSentError) Unwrap() error { return e.Err }

// ReplyError is a node's answer to a fact with a status code other than 0.
type ReplyError struct {
	Node   receipt.NodeID
	Action string // agent#action
	Code   int    // mcorpc status code, 1 to 5
	Text   string // bounded, without control characters
}

// Error names the node, the action and the node's words.
func (e *ReplyError) Error() string {
	return fmt.Sprintf("%s on %s failed with code %d: %s", e.Action, e.Node, e.Code, e.Text)
}
