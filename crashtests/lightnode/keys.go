package lightnode

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/choria-io/go-choria/choria"
	"github.com/choria-io/go-choria/providers/agent/mcorpc"
	"github.com/choria-io/go-choria/providers/agent/mcorpc/golang/provision"
)

func (l *life) jwt(req *mcorpc.Request, reply *mcorpc.Reply) (any, error) {
	var in provision.JWTRequest
	if err := l.parse(&in, &in.Token, req, reply); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(l.node.guest.TokenFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, agentError("Provisioning JWT file does not exist")
	}
	if err != nil {
		return nil, agentError("Could not read Provisioning JWT: %s", err)
	}
	private, public, err := choria.ECDHKeyPair()
	if err != nil {
		return nil, agentError("Could not calculate EDCH keys: %s", err)
	}
	l.ecdh = private
	return provision.JWTReply{JWT: string(text), ECDHPublic: hex.EncodeToString(public)}, nil
}

// gen25519 writes a new seed. The token of the former one goes first, because it would not match.
func (l *life) gen25519(req *mcorpc.Request, reply *mcorpc.Reply) (any, error) {
	var in provision.ED25519Request
	if err := l.parse(&in, &in.Token, req, reply); err != nil {
		return nil, err
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, agentError("Could not create keypair: %s", err)
	}
	token, seed := filepath.Join(l.node.dir, "server.jwt"), filepath.Join(l.node.dir, "server.seed")
	if err = os.Remove(token); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, agentError("Could not remove existing jwt file: %v: %v", token, err)
	}
	if err = os.WriteFile(seed, []byte(hex.EncodeToString(private.Seed())), 0o600); err != nil {
		return nil, agentError("Could not write key %s: %s", seed, err)
	}
	return provision.ED25519Reply{
		PublicKey: hex.EncodeToString(public), Directory: l.node.dir, Signature: hex.EncodeToString(ed25519.Sign(private, []byte(in.Nonce))),
	}, nil
}

// poolSize is how many RSA keys there are; making one takes about as long as provisioning ten nodes.
const poolSize = 4

var (
	rsaPool = sync.OnceValues(func() ([]*rsa.PrivateKey, error) {
		var keys []*rsa.PrivateKey
		for range poolSize {
			key, err := rsa.GenerateKey(rand.Reader, 2048)
			if err != nil {
				return nil, err
			}
			keys = append(keys, key)
		}
		return keys, nil
	})
	rsaNext atomic.Uint64
)

// rsaKey gives one of a few keys: a node that makes its key again gets another one.
func rsaKey() (*rsa.PrivateKey, error) {
	keys, err := rsaPool()
	if err != nil {
		return nil, err
	}
	return keys[rsaNext.Add(1)%poolSize], nil
}

func (l *life) gencsr(req *mcorpc.Request, reply *mcorpc.Reply) (any, error) {
	var in provision.CSRRequest
	if err := l.parse(&in, &in.Token, req, reply); err != nil {
		return nil, err
	}
	dir := filepath.Join(l.node.dir, "ssl")
	if err := os.MkdirAll(dir, 0o771); err != nil {
		return nil, agentError("Could not create SSL Directory %s: %s", dir, err)
	}
	if in.CN == "" {
		in.CN = l.node.fw.Certname()
	}
	subject := pkix.Name{CommonName: in.CN, Country: given(in.C), Locality: given(in.L), Organization: given(in.O), OrganizationalUnit: given(in.OU)}
	raw, err := asn1.Marshal(subject.ToRDNSequence())
	if err != nil {
		return nil, agentError("Could not create CSR: %s", err)
	}
	key, err := rsaKey()
	if err != nil {
		return nil, agentError("Could not create private key: %s", err)
	}
	block := pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	if err = os.WriteFile(filepath.Join(dir, "private.pem"), pem.EncodeToMemory(&block), 0o600); err != nil {
		return nil, agentError("Could not store private key: %s", err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{RawSubject: raw, SignatureAlgorithm: x509.SHA256WithRSA}, key)
	if err != nil {
		return nil, agentError("Could not create CSR bytes: %s", err)
	}
	csr := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	if err = os.WriteFile(filepath.Join(dir, "csr.pem"), csr, 0o600); err != nil {
		return nil, agentError("Could not store CSR: %s", err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(&key.PublicKey)})
	return provision.CSRReply{CSR: string(csr), PublicKey: string(public), SSLDir: dir}, nil
}

func given(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}
