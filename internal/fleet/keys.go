package fleet

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/choria-io/go-choria/choria"
	"github.com/choria-io/tokens"
	"github.com/golang-jwt/jwt/v5"
)

const (
	organisation  = "choria"
	tokenValidity = 365 * 24 * time.Hour
	signerCaller  = "choria=provisioner_signer"

	provisionerName = "provisioner"
)

// keys are the secrets of one fleet, written under its directory.
type keys struct {
	dir        string
	issuer     ed25519.PrivateKey
	issuerHex  string
	password   string // of the provisioning account's client
	system     string // of the system account
	nodeToken  string // what the provision agent asks for with each request
	signerSeed string // path
	signerJWT  string // path
	x509       bool
}

func (k *keys) path(name string) string { return filepath.Join(k.dir, name) }

// newKeys writes the issuer, the broker's identity and the provisioner's signer, and for X509 the certificate authority.
func newKeys(dir string, useX509 bool) (*keys, error) {
	k := &keys{dir: dir, x509: useX509}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the key directory: %w", err)
	}
	public, private, err := choria.Ed25519KeyPairToFile(k.path("issuer.seed"))
	if err != nil {
		return nil, fmt.Errorf("writing the issuer's key in %s: %w", dir, err)
	}
	k.issuer, k.issuerHex = private, hex.EncodeToString(public)
	for _, secret := range []*string{&k.password, &k.system, &k.nodeToken} {
		if *secret, err = randomHex(); err != nil {
			return nil, err
		}
	}
	if useX509 {
		if err = k.writeAuthority(); err != nil {
			return nil, fmt.Errorf("making the certificate authority: %w", err)
		}
	}
	if err = k.brokerCertificate(); err != nil {
		return nil, fmt.Errorf("making the broker's certificate: %w", err)
	}
	if err = k.writeBrokerToken(); err != nil {
		return nil, fmt.Errorf("making the broker's token: %w", err)
	}
	if err = k.writeSigner(); err != nil {
		return nil, fmt.Errorf("making the signer's token: %w", err)
	}
	return k, nil
}

func randomHex() (string, error) {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("reading random bytes: %w", err)
	}
	return hex.EncodeToString(b), nil
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

func (k *keys) writeBrokerToken() error {
	public, _, err := choria.Ed25519KeyPairToFile(k.path("broker.seed"))
	if err != nil {
		return err
	}
	claims, err := tokens.NewServerClaims("localhost", []string{organisation}, organisation,
		&tokens.ServerPermissions{Streams: true, ServiceHost: true}, nil, public, "provctl fleet", tokenValidity)
	if err != nil {
		return err
	}
	return k.sign(claims, k.path("broker.jwt"))
}

// writeSigner makes the one identity a provisioner needs: it connects to the provisioning account with it, and signs the
// servers' tokens with it in the issuer's name.
func (k *keys) writeSigner() error {
	k.signerSeed, k.signerJWT = k.path("signer.seed"), k.path("signer.jwt")
	public, _, err := choria.Ed25519KeyPairToFile(k.signerSeed)
	if err != nil {
		return err
	}
	claims, err := tokens.NewClientIDClaims(signerCaller, nil, organisation, nil, "", "provctl fleet", tokenValidity,
		&tokens.ClientPermissions{ServerProvisioner: true, FleetManagement: true, EventsViewer: true, ElectionUser: true, AuthenticationDelegator: true}, public)
	if err != nil {
		return err
	}
	if err = claims.AddOrgIssuerData(k.issuer); err != nil {
		return err
	}
	return k.sign(claims, k.signerJWT)
}

// writeProvisioningToken makes the token with which a node enters the provisioning account and finds its broker, and which
// tells whether it may be upgraded (providers/provtarget/builddefaults/default.go:152).
func (k *keys) writeProvisioningToken(path, facts, broker string, allowUpdate bool) error {
	claims, err := tokens.NewProvisioningClaims(false, true, k.nodeToken, "", "", []string{broker}, "", "", facts,
		organisation, "provctl fleet", tokenValidity)
	if err != nil {
		return err
	}
	claims.ProtoV2, claims.AllowUpdate = !k.x509, allowUpdate
	return k.sign(claims, path)
}

func (k *keys) sign(claims jwt.Claims, path string) error {
	token, err := tokens.SignToken(claims, k.issuer)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(token), 0o600)
}
