package helper

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
)

// Input is what the helper gets on standard input. Names, order and escaping
// follow the existing provisioner byte for byte: a member that does not apply
// is null, not absent.
type Input struct {
	Identity  string          `json:"identity"`
	CSR       *CSR            `json:"csr"`
	Ed25519   *Ed25519        `json:"ed25519_pubkey"`
	Inventory string          `json:"inventory"` // the reply of rpcutil#inventory: JSON in a string
	JWT       json.RawMessage `json:"jwt"`       // verified claims of provisioning.jwt, or nil
}

// CSR is the reply of gencsr.
type CSR struct {
	CSR       string `json:"csr"`
	PublicKey string `json:"public_key"`
	SSLDir    string `json:"ssldir"`
}

// Ed25519 is the reply of gen25519, its signature verified.
type Ed25519 struct {
	PublicKey string `json:"public_key"`
	Directory string `json:"directory"`
	Signature string `json:"signature"`
}

// encode uses the standard encoder on purpose: it is the one whose escaping
// helpers have always seen.
func (in Input) encode() ([]byte, error) {
	out, err := json.Marshal(in)
	if err != nil {
		return nil, &Error{Kind: ErrInput, Detail: plain(err), Remedy: "the node's claims are not JSON; look at its provisioning.jwt", Cause: err}
	}
	return out, nil
}

// Decision is what the helper wants done with the node.
type Decision int

// The decisions. Their values are not stored anywhere.
const (
	// Defer leaves the node as it is, to be asked again later.
	Defer Decision = iota + 1
	// Shutdown shuts the node's server down.
	Shutdown
	// Configure sends the configuration and restarts the node.
	Configure
)

// String returns the decision's name.
func (d Decision) String() string {
	switch d {
	case Defer:
		return "defer"
	case Shutdown:
		return "shutdown"
	case Configure:
		return "configure"
	}
	return fmt.Sprintf("Decision(%d)", int(d))
}

// Reply is a decoded and checked answer. It holds secrets: printing or logging
// it shows the decision and the digest only.
type Reply struct {
	Msg            string            // reason of a defer or shutdown; foreign text, escape it
	Configuration  map[string]string // passes every rule of checkConfiguration when the decision is Configure
	ServerClaims   []byte            // JSON object, or nil
	ActionPolicies map[string]string // file name, ending in .policy, to text
	OPAPolicies    map[string]string // file name, ending in .rego, to text

	// TLS files for the node, in PEM: all empty, or Certificate, CA and SSLDir set. Only sizes and SSLDir are checked here.
	// Key is a secret in clear text, and must be encrypted to the node; empty: the node keeps the one it made.
	Certificate, CA, Key string
	SSLDir               string // directory on the node; Run fills in the one of the node's request where the helper left it out

	Upgrade string // version to upgrade to first, printable ASCII; empty: none, or upgrades are off

	// Warnings are what was accepted and deserves a look. Run has logged them.
	Warnings []string

	decision Decision
	digest   string
}

// Decision returns what to do. defer wins over shutdown, and both over a
// configuration, as in the existing provisioner.
func (r *Reply) Decision() Decision { return r.decision }

// Digest names the reply's content: SHA-256 in hex over a canonical form, equal
// for replies that differ in white space or member order only. It does not
// reveal the content and may be stored. After Run it includes what Run filled in and
// leaves out what it dropped.
func (r *Reply) Digest() string { return r.digest }

// Format writes decision and digest, whatever the verb.
func (r *Reply) Format(f fmt.State, _ rune) {
	if r == nil {
		_, _ = io.WriteString(f, "no reply")
		return
	}
	_, _ = fmt.Fprintf(f, "%s %s", r.decision, r.digest)
}

// LogValue shows decision, digest and sizes.
func (r *Reply) LogValue() slog.Value {
	if r == nil {
		return slog.StringValue("no reply")
	}
	return slog.GroupValue(
		slog.String("decision", r.decision.String()), slog.String("digest", r.digest),
		slog.Int("settings", len(r.Configuration)), slog.Int("policies", len(r.ActionPolicies)+len(r.OPAPolicies)),
	)
}
