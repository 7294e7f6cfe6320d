// Package agent holds the inputs of the choria_provision agent's effects, as the agent reads them
// (go-choria v0.30.2, providers/agent/mcorpc/golang/provision). It imports no go-choria.
package agent

import "encoding/json"

type (
	// Gen25519 is ed25519_action.go:18. The node signs the nonce with its new key.
	Gen25519 struct {
		Token string `json:"token,omitempty"`
		Nonce string `json:"nonce"`
	}
	// GenCSR is csr_action.go:24.
	GenCSR struct {
		Token string `json:"token,omitempty"`
		CN    string `json:"cn,omitempty"`
		C     string `json:"C,omitempty"`
		L     string `json:"L,omitempty"`
		O     string `json:"O,omitempty"`
		OU    string `json:"OU,omitempty"`
		ST    string `json:"ST,omitempty"`
	}
	// Configure is configure_action.go:24.
	Configure struct {
		Token          string            `json:"token,omitempty"`
		Config         Config            `json:"config"`
		Key            string            `json:"key,omitempty"` // encrypted private key
		Certificate    string            `json:"certificate,omitempty"`
		CA             string            `json:"ca,omitempty"`
		SSLDir         string            `json:"ssldir,omitempty"`
		ECDHPublic     string            `json:"ecdh_public,omitempty"` // hex
		ServerJWT      string            `json:"server_jwt,omitempty"`
		ActionPolicies map[string]string `json:"action_policies,omitempty"`
		OPAPolicies    map[string]string `json:"opa_policies,omitempty"`
	}
	// ReleaseUpdate is release_update_action.go:19.
	ReleaseUpdate struct {
		Token      string `json:"token,omitempty"`
		Repository string `json:"repository"`
		Version    string `json:"version"`
	}
	// Restart is restart_action.go:24. The node waits rand(Splay)+2 s; Splay 0 means 10.
	Restart struct {
		Token string `json:"token,omitempty"`
		Splay int    `json:"splay,omitempty"` // seconds
	}
	// Shutdown is shutdown_action.go:18.
	Shutdown struct {
		Token string `json:"token,omitempty"`
	}
	// Config is a node's configuration; it travels as a string that holds JSON.
	Config map[string]string
)

// MarshalJSON writes the map as JSON inside a string.
func (c Config) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(map[string]string(c))
	if err != nil {
		return nil, err
	}
	return json.Marshal(string(b))
}
