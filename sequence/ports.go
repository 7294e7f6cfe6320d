package sequence

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"provctl/internal/helper"
	"provctl/journal"
	"provctl/receipt"
)

// ErrAbsent is returned by the facts of Wire when nobody is subscribed under the node's identity: it is not there now.
var ErrAbsent = errors.New("the node is not there")

// ErrCut is returned by the facts of Wire when the connection to the broker broke: nothing is known of the node.
var ErrCut = errors.New("the broker is away")

// ErrTwin is returned by Lane.Gate when two servers have answered under the node's name since the pass began.
var ErrTwin = errors.New("two servers answer under its name")

// ErrNoToken is returned by Wire.JWT when the node has no token that it could show. Its agent is idle all the same.
var ErrNoToken = errors.New("the node has no provisioning token")

// ErrNotSent is returned by Wire.Publish when provably nothing of the request left this process.
var ErrNotSent = errors.New("not sent")

// Journal is what a pass needs of the durable state; *journal.Journal provides it.
type Journal interface {
	// History returns the receipts of one incarnation of a node, in sequence order.
	History(receipt.NodeID, receipt.Incarnation) (receipt.History, error)
	// Node returns what is recorded of a node, its last job's end included.
	Node(receipt.NodeID) (receipt.Node, error)
	// Begin makes a receipt durable before its request may leave.
	Begin(context.Context, journal.Intent) (*journal.Pending, error)
	// MayUpgrade is receipt.ErrRepeat once a node was upgraded to a version too often in vain.
	MayUpgrade(node receipt.NodeID, version string) error
	// Settle records the outcome and the job's next step in one transaction.
	Settle(context.Context, *journal.Pending, journal.Settlement) (receipt.Receipt, error)
}

// Wire is what a pass needs of the network. Facts are retried inside it; effects never are.
type Wire interface {
	// Stats asks rpcutil#daemon_stats once; the baseline is what the counter rule compares later answers with.
	Stats(context.Context, receipt.NodeID) (receipt.StatsSeen, receipt.Baseline, error)
	// JWT asks for the node's provisioning token and has it make a new key for the exchange of secrets. It takes the provision
	// agent's lock and mutex, so its answer, an ErrNoToken included, also shows that no effect accepted earlier is still running.
	JWT(context.Context, receipt.NodeID) (Introduction, error)
	// Inventory asks rpcutil#inventory and returns the reply's data as the helper contract wants it.
	Inventory(context.Context, receipt.NodeID) (json.RawMessage, error)
	// Prepare builds and signs an effect's request; its TTL clock starts. Nothing is sent.
	Prepare(receipt.NodeID, receipt.Action, any) (Prepared, error)
	// Publish checks the fence and sends. An error that is ErrNotSent means that provably nothing left; any other is a defect of
	// the caller, and then nobody knows.
	Publish(context.Context, *journal.Pending, Prepared) (Call, error)
}

// Introduction is what a node says of itself; nothing of it is verified.
type Introduction struct {
	Token string // provisioning.jwt
	ECDH  string // public key for secrets sent to it, hex; "" if it has none
}

// Prepared is a signed request that has not been sent.
type Prepared struct {
	Request receipt.RequestID
	Time    time.Time
	Horizon receipt.Horizon
	Digest  string
	Carried any // the wire's own form of it
}

// Call is an effect in flight.
type Call interface {
	// Done is closed once the outcome is known: a reply, no responders, or the horizon.
	Done() <-chan struct{}
	// Outcome may be called once Done is closed.
	Outcome() Outcome
	// GiveUp ends the waiting for a reply: Done is closed soon, and the node may be asked for facts.
	GiveUp()
}

// Outcome is what came of a published request. Without a reply Event says NeverSent or Lost; with one the reply is to be
// classified.
type Outcome struct {
	Event receipt.Event
	Why   string
	Reply *receipt.Reply
	Data  json.RawMessage
}

// Advisor runs the site's helper program.
type Advisor interface {
	Ask(ctx context.Context, job receipt.Job, in helper.Input) (*helper.Reply, error)
}

// Credentials checks what nodes present and issues what they get.
type Credentials interface {
	// VerifyNode checks a provisioning token and returns its claims for the helper.
	VerifyNode(token string) (json.RawMessage, error)
	// ReadKey decodes the reply to a key generation; of a gen25519 it verifies the signature over the nonce.
	ReadKey(a receipt.Action, data json.RawMessage, nonce string) (receipt.Key, error)
	// CheckCSR verifies a node's certificate signing request and that no name in it is denied.
	CheckCSR(node receipt.NodeID, csr string) error
	// CheckIssued verifies the certificate that the helper delivers against the node's request, "" if it made none.
	CheckIssued(node receipt.NodeID, csr string, reply *helper.Reply) error
	// SealKey encrypts a private key to a node's key for secrets, and returns the public key to decrypt it with, in hex.
	SealKey(key, ecdh string) (sealed, public string, err error)
	// ServerJWT signs the node's server token.
	ServerJWT(node receipt.NodeID, publicKey string, reply *helper.Reply) (string, error)
}

// Lane is the worker's permission to be busy.
type Lane interface {
	// Park waits until done is closed or ctx ends. A wait that lasts gives the lane to other jobs.
	Park(ctx context.Context, done <-chan struct{})
	// Await is Park for an effect in flight. One that is waited for unusually long counts as a doubt: too many of them stop new
	// claims. The error says why the wait ended before done was closed: ctx ended, or there will be no reply to wait for.
	Await(ctx context.Context, done <-chan struct{}, r receipt.Receipt) error
	// Retake takes a lane again if Park gave it away, and waits for one.
	Retake()
	// Gate returns nil while effects may be begun, else why not: the worker is stopping, the broker is away, or the fleet is
	// blocked.
	Gate() error
	// Disturbed returns nil unless the connection to the broker broke since the pass began: what failed then says nothing
	// about the node.
	Disturbed() error
}
