package lightnode

import (
	"bytes"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/choria-io/go-choria/choria"
	"github.com/choria-io/go-choria/config"
	"github.com/choria-io/go-choria/lifecycle"
	"github.com/choria-io/go-choria/providers/agent/mcorpc"
	"github.com/choria-io/go-choria/providers/agent/mcorpc/golang/provision"
)

// configure writes certificates, the token, the configuration and the policies, in this order: what fails leaves what came
// before it.
func (l *life) configure(req *mcorpc.Request, reply *mcorpc.Reply) (any, error) {
	var in provision.ConfigureRequest
	if err := l.parse(&in, &in.Token, req, reply); err != nil {
		return nil, err
	}
	switch {
	case in.Configuration == "":
		return nil, agentError("Did not receive any configuration to write, cannot write a empty configuration file")
	case in.Key != "" && in.ECDHPublic == "":
		return nil, agentError("EDCH Public Key not supplied while providing a private key")
	}
	settings := map[string]string{}
	if err := json.Unmarshal([]byte(in.Configuration), &settings); err != nil {
		return nil, agentError("Could not decode configuration data: %s", err)
	}
	if err := l.writeTLS(in); err != nil {
		return nil, agentError("TLS Setup Failed: %s", err)
	}
	if in.ServerJWT != "" {
		if err := os.WriteFile(filepath.Join(l.node.dir, "server.jwt"), []byte(in.ServerJWT), 0o600); err != nil {
			return nil, agentError("JWT Setup Failed: %s", err)
		}
	}
	if err := l.writeConfig(settings, req); err != nil {
		return nil, agentError("Could not write config: %s", err)
	}
	policies := filepath.Join(l.node.dir, "policies")
	if err := writePolicies(policies, ".policy", in.ActionPolicies); err != nil {
		return nil, agentError("Could not save Action Policies: %s", err)
	}
	if err := writePolicies(filepath.Join(policies, "rego"), ".rego", in.OPAPolicies); err != nil {
		return nil, agentError("Could not save Open Policy Agent Policies: %s", err)
	}
	l.announce(lifecycle.Provisioned)
	return provision.Reply{Message: fmt.Sprintf("Wrote %d lines to %s", len(settings)+1, l.node.guest.Config)}, nil
}

// writeTLS does nothing unless certificate, CA and directory are all given.
func (l *life) writeTLS(in provision.ConfigureRequest) error {
	if in.Certificate == "" || in.SSLDir == "" || in.CA == "" {
		return nil
	}
	if err := os.MkdirAll(in.SSLDir, 0o700); err != nil {
		return fmt.Errorf("could not create ssl directory %s: %w", in.SSLDir, err)
	}
	for _, f := range []struct{ name, what, text string }{{"certificate.pem", "Certificate", in.Certificate}, {"ca.pem", "CA", in.CA}} {
		path := filepath.Join(in.SSLDir, f.name)
		if err := os.WriteFile(path, []byte(f.text), 0o600); err != nil {
			return fmt.Errorf("could not write %s to %s: %w", f.what, path, err)
		}
	}
	if in.Key == "" {
		return nil
	}
	key, err := l.decrypt(in.Key, in.ECDHPublic)
	if err != nil {
		return fmt.Errorf("could not decrypt private key: %w", err)
	}
	path := filepath.Join(in.SSLDir, "private.pem")
	if err = os.WriteFile(path, key, 0o600); err != nil {
		return fmt.Errorf("could not write KEY to %s: %w", path, err)
	}
	// The request belongs to another key; that it cannot be removed is no error on a server either.
	_ = os.Remove(filepath.Join(in.SSLDir, "csr.pem"))
	return nil
}

// decrypt opens a key that was encrypted for the node's last jwt reply.
func (l *life) decrypt(key, public string) ([]byte, error) {
	theirs, err := hex.DecodeString(public)
	if err != nil {
		return nil, err
	}
	if len(l.ecdh) == 0 {
		return nil, errors.New("private key not set")
	}
	secret, err := choria.ECDHSharedSecret(l.ecdh, theirs)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode([]byte(key))
	if block == nil {
		return nil, errors.New("bad key received")
	}
	//lint:ignore SA1019 it is what Choria's protocol uses
	if !x509.IsEncryptedPEMBlock(block) {
		return nil, errors.New("key is not encrypted")
	}
	//lint:ignore SA1019 as above
	der, err := x509.DecryptPEMBlock(block, secret)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: der}), nil
}

// writeConfig replaces server.conf by way of a temporary file, if what it says can be read. Its first line names the request.
func (l *life) writeConfig(settings map[string]string, req *mcorpc.Request) error {
	var text bytes.Buffer
	fmt.Fprintf(&text, "# configuration file written in request %s from %s (%s) at %s\n", req.RequestID, req.CallerID, req.SenderID, time.Now())
	for key, value := range settings {
		fmt.Fprintf(&text, "%s=%s\n", key, value)
	}
	path := filepath.Join(l.node.dir, "provision.tmp")
	defer os.Remove(path)
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		return fmt.Errorf("could not write to temp file %s: %w", path, err)
	}
	if _, err := config.NewConfig(path); err != nil {
		return fmt.Errorf("generated configuration could not be parsed: %w", err)
	}
	if err := os.Rename(path, l.node.guest.Config); err != nil {
		return fmt.Errorf("could not rename temp file %s to %s: %w", path, l.node.guest.Config, err)
	}
	return nil
}

// writePolicies replaces a directory of policies; with none given it stays as it is.
func writePolicies(dir, extension string, policies map[string]string) error {
	if len(policies) == 0 {
		return nil
	}
	for name := range policies {
		if !strings.HasSuffix(name, extension) {
			return fmt.Errorf("expected %q to have %s extension", name, extension)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return errors.New("could not remove existing policies")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, text := range policies {
		if name == "" || text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o400); err != nil {
			return fmt.Errorf("saving policy %v failed: %w", name, err)
		}
	}
	return nil
}
