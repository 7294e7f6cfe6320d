package crashtests

import (
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/choria-io/tokens"

	"provctl/internal/fleet"
)

const (
	actionPolicy = "policy default deny\n"
	opaPolicy    = "package io.choria.aaasvc\ndefault allow = false\n"
)

// keepAnswers has the helper answer with policies too and leaves each answer beside the helper, where the test finds it. change is
// shell that may edit the answer on its way.
func (s *site) keepAnswers(change string) {
	s.t.Helper()
	policies, err := json.Marshal(map[string]any{
		"action_policies": map[string]string{"package.policy": actionPolicy}, "opa_policies": map[string]string{"default.rego": opaPolicy},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	members := strings.ReplaceAll(string(policies[1:len(policies)-1]), `\`, `\\`) // sed takes one of each pair away
	s.wrapHelper(change + "answer | sed '1s|^{|{" + members + ",|' | tee \"$0.$identity\"\n")
}

// advice is what the helper said of a node, as far as the tests look at it.
type advice struct{ Key, Certificate, CA string }

func (s *site) advice(node string) advice {
	s.t.Helper()
	var a advice
	if err := json.Unmarshal([]byte(read(s.t, s.files.Helper+"."+node)), &a); err != nil {
		s.t.Fatal(err)
	}
	return a
}

// enrolled runs a worker until all nodes are provisioned and it has nothing left to do, and stops it.
func (s *site) enrolled() {
	s.t.Helper()
	nodes := s.fleet.Nodes()
	s.start()
	s.awaitFleet("every node is provisioned", func(st fleet.State) bool { return st.Count(joined) == len(nodes) })
	s.await("every job has ended", func() bool {
		r := s.inspect()
		return r.Counts.Results["provisioned"] == len(nodes) && len(r.Items) == 0
	})
	if code := s.stop(); code != 0 {
		s.t.Errorf("the worker stopped with exit code %d", code)
	}
	s.noneTwice()
}

// request finds the one request for an action on a node in the worker's log and in the node's, and wants them to be the same.
func (s *site) request(node, action string) string {
	s.t.Helper()
	var logged, ran []string
	for _, l := range s.logSince(0) {
		if l.Msg == "effect begins" && l.Node == node && l.Action == action {
			logged = append(logged, l.Request)
		}
	}
	entries, err := s.fleet.Log(node)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Phase == fleet.PhaseEnd && e.Action == action {
			ran = append(ran, e.RequestID)
		}
	}
	if len(logged) != 1 || !slices.Equal(logged, ran) {
		s.t.Fatalf("%s of %s: the worker logged requests %q, the node ran %q; want one, the same", action, node, logged, ran)
	}
	return logged[0]
}

// configured looks at what every flow leaves on a node: a configuration that names its request, and policies.
func (s *site) configured(node string) {
	s.t.Helper()
	conf := s.nodeFile(node, "server.conf")
	first, _, _ := strings.Cut(read(s.t, conf), "\n")
	if want := "# configuration file written in request " + s.request(node, "configure") + " from "; !strings.HasPrefix(first, want) {
		s.t.Errorf("%s: server.conf begins %q, want %q", node, first, want)
	}
	if got := read(s.t, s.nodeFile(node, "policies", "package.policy")); got != actionPolicy {
		s.t.Errorf("%s: the action policy is %q", node, got)
	}
	if got := read(s.t, s.nodeFile(node, "policies", "rego", "default.rego")); got != opaPolicy {
		s.t.Errorf("%s: the open policy agent policy is %q", node, got)
	}
	s.modes(node, map[string]os.FileMode{"server.conf": 0o600, "policies/package.policy": 0o400, "policies/rego/default.rego": 0o400})
	s.ran(node, map[string]int{"configure": 1, "restart": 1, "shutdown": 0})
}

func (s *site) modes(node string, want map[string]os.FileMode) {
	s.t.Helper()
	for name, m := range want {
		if got := mode(s.t, s.nodeFile(node, name)); got != m {
			s.t.Errorf("%s: %s has mode %o, want %o", node, name, got, m)
		}
	}
}

// hidden fails the test if anything that the worker wrote holds a line of a key.
func (s *site) hidden(what, key string) {
	s.t.Helper()
	shown, _ := s.provctl("inspect", "--json", "--state-dir", s.files.StateDir)
	told := map[string]string{"the log": read(s.t, s.log), "inspect": shown, "the journal": read(s.t, s.files.StateDir+"/journal.db")}
	lines := 0
	for line := range strings.Lines(key) {
		if line = strings.TrimSpace(line); len(line) < 40 {
			continue
		}
		lines++
		for place, text := range told {
			if strings.Contains(text, line) {
				s.t.Errorf("%s holds %s", place, what)
			}
		}
	}
	if lines == 0 {
		s.t.Errorf("%s is empty: nothing was looked for", what)
	}
}

func TestEnrolWithServerTokens(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 2, worker: fleet.WorkerOptions{Values: patient(nil)}})
	s.keepAnswers("")
	s.enrolled()
	for _, node := range s.fleet.Nodes() {
		s.configured(node)
		s.modes(node, map[string]os.FileMode{"server.jwt": 0o600, "server.seed": 0o600})
		claims, err := tokens.ParseServerTokenFileUnverified(s.nodeFile(node, "server.jwt"))
		if err != nil {
			t.Fatal(err)
		}
		matches, err := claims.IsMatchingSeedFile(s.nodeFile(node, "server.seed"))
		if err != nil || !matches {
			t.Errorf("%s: the token is for the seed: %t, %v", node, matches, err)
		}
		if claims.ChoriaIdentity != node || claims.OrganizationUnit != "choria" || !slices.Equal(claims.Collectives, []string{"choria"}) {
			t.Errorf("%s: identity %q, ou %q, collectives %q", node, claims.ChoriaIdentity, claims.OrganizationUnit, claims.Collectives)
		}
		if p := claims.Permissions; p == nil || !p.Streams || !p.Governor || p.ServiceHost || p.Submission {
			t.Errorf("%s: permissions %+v", node, p)
		}
		if left := time.Until(claims.ExpiresAt.Time); left < 364*24*time.Hour || left > 366*24*time.Hour {
			t.Errorf("%s: the token lasts %s, the helper said a year", node, left)
		}
		s.ran(node, map[string]int{"gen25519": 1, "gencsr": 0})
	}
	s.answers(false, s.fleet.Nodes()...)
	s.discreet()
	s.told("ed25519")
}

// enrolledByCertificate looks at the files that a certificate flow leaves on a node, and returns its key.
func (s *site) enrolledByCertificate(node string) *rsa.PrivateKey {
	s.t.Helper()
	s.configured(node)
	s.modes(node, map[string]os.FileMode{"ssl/certificate.pem": 0o644, "ssl/ca.pem": 0o644, "ssl/private.pem": 0o600})
	said, ca := s.advice(node), read(s.t, s.fleet.CA().Certificate)
	if got := read(s.t, s.nodeFile(node, "ssl", "ca.pem")); got != ca || said.CA != ca {
		s.t.Errorf("%s: ca.pem is not the authority's certificate", node)
	}
	if got := read(s.t, s.nodeFile(node, "ssl", "certificate.pem")); got != said.Certificate {
		s.t.Errorf("%s: certificate.pem is not what the helper answered", node)
	}
	private := s.nodeFile(node, "ssl", "private.pem")
	pair, err := tls.LoadX509KeyPair(s.nodeFile(node, "ssl", "certificate.pem"), private) // refuses a key that does not match
	if err != nil {
		s.t.Fatalf("%s: %v", node, err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(ca))
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: node}); err != nil || pair.Leaf.Subject.CommonName != node {
		s.t.Errorf("%s: the certificate is of %s, %v", node, pair.Leaf.Subject, err)
	}
	if _, err := os.Stat(s.nodeFile(node, "server.jwt")); !errors.Is(err, os.ErrNotExist) {
		s.t.Errorf("%s: it has a server token: %v", node, err)
	}
	s.hidden("the key of "+node, read(s.t, private))
	key, ok := pair.PrivateKey.(*rsa.PrivateKey)
	if !ok {
		s.t.Fatalf("%s: its key is a %T", node, pair.PrivateKey)
	}
	return key
}

func TestEnrolWithCertificatesForTheNodesKeys(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 2, fleet: withCertificates, worker: fleet.WorkerOptions{Values: patient(nil)}})
	s.keepAnswers("")
	s.enrolled()
	for _, node := range s.fleet.Nodes() {
		key := s.enrolledByCertificate(node)
		if s.advice(node).Key != "" {
			t.Errorf("the helper delivered a key for %s", node)
		}
		block, _ := pem.Decode([]byte(read(t, s.nodeFile(node, "ssl", "csr.pem"))))
		csr, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil || !key.PublicKey.Equal(csr.PublicKey) || csr.Subject.CommonName != node {
			t.Errorf("%s: csr.pem is not of its key and name: %v", node, err)
		}
		s.ran(node, map[string]int{"gencsr": 1, "gen25519": 0})
	}
	s.answers(true, s.fleet.Nodes()...)
	s.discreet()
	s.told("pki")
}

// deliveredKey wants the node to have the key that the helper made.
func (s *site) deliveredKey(node string, got *rsa.PrivateKey) {
	s.t.Helper()
	said := s.advice(node)
	block, _ := pem.Decode([]byte(said.Key))
	if block == nil {
		s.t.Fatalf("the helper delivered no key for %s", node)
	}
	want, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil || !want.Equal(got) {
		s.t.Errorf("%s: its key is not what the helper delivered: %v", node, err)
	}
	s.hidden("the helper's key of "+node, said.Key)
	if _, err := os.Stat(s.nodeFile(node, "ssl", "csr.pem")); !errors.Is(err, os.ErrNotExist) {
		s.t.Errorf("%s: the request of its former key is still there: %v", node, err)
	}
}

func TestEnrolWithCertificatesForKeysOfTheHelper(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 2, fleet: withCertificates, worker: fleet.WorkerOptions{Values: patient(nil), OwnKey: true}})
	s.keepAnswers("")
	s.enrolled()
	for _, node := range s.fleet.Nodes() {
		s.deliveredKey(node, s.enrolledByCertificate(node))
		s.ran(node, map[string]int{"gencsr": 1, "gen25519": 0})
	}
	s.answers(true, s.fleet.Nodes()...)
	s.discreet()
	s.told("pki-helper-key")
}

// TestEnrolByTheHelperAlone has no key made by the node: the helper delivers key, certificate and where they belong.
func TestEnrolByTheHelperAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 2, fleet: withCertificates, worker: fleet.WorkerOptions{
		OwnKey: true, Values: patient(map[string]any{"features": map[string]any{"jwt": true}}),
	}})
	// The fleet's helper wants the directory that a node's request would name.
	dir := s.fleet.Dir() + "/nodes/$identity/ssl"
	s.keepAnswers(fmt.Sprintf("case \"$input\" in *'\"csr\":null,\"ed25519_pubkey\":null'*'\"jwt\":{'*) ;; *) exit 9;; esac\n"+
		"input=$(printf '%%s' \"$input\" | sed \"s|\\\"csr\\\":null|\\\"csr\\\":{\\\"ssldir\\\":\\\"%[1]s\\\"}|\")\n"+
		"answer() { printf '%%s' \"$input\" | '%[2]s.fleet' | sed \"1s|^{|{\\\"ssldir\\\":\\\"%[1]s\\\",|\"; }\n", dir, s.files.Helper))
	s.enrolled()
	for _, node := range s.fleet.Nodes() {
		s.deliveredKey(node, s.enrolledByCertificate(node))
		s.ran(node, map[string]int{"gencsr": 0, "gen25519": 0})
	}
	s.answers(true, s.fleet.Nodes()...)
	s.discreet()
	s.told("jwt")
}

// TestDeniedNameGetsNoCertificate has a node whose own identity is on the deny list. The helper, which would sign, never hears of it,
// and a second try asks for no second request.
func TestDeniedNameGetsNoCertificate(t *testing.T) {
	t.Parallel()
	s := newSite(t, options{nodes: 2, fleet: withCertificates, worker: fleet.WorkerOptions{
		Values: patient(map[string]any{"cert_deny_list": []string{`^node-001\.`}}),
	}})
	denied, allowed := s.fleet.Nodes()[0], s.fleet.Nodes()[1]
	s.keepAnswers("printf '%s\\n' \"$identity\" >>\"$0.ran\"\n")
	s.start()
	s.awaitFleet("the other node is provisioned", func(st fleet.State) bool { return joined(st.Nodes[allowed]) })
	s.await("the denied node is held", func() bool { return s.heldWhy(denied) != "" })
	if why := s.heldWhy(denied); !strings.Contains(why, `cert_deny_list "^node-001\\."`) || !strings.Contains(why, denied) {
		t.Errorf("it is held for %q, which lacks the pattern or the name", why)
	}
	if out, code := s.provctl("admit", denied, "--reason", "again", "--state-dir", s.files.StateDir); code != 0 {
		t.Fatalf("admit: exit %d: %s", code, out)
	}
	v := s.awaitView("it was tried again", func(v view) bool { return v.Counts.Results["failed"] == 2 })
	if state, _ := v.out(denied); state != "held" || len(v.Items) != 0 {
		t.Errorf("it is %q, with %d open receipts", state, len(v.Items))
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.ran(denied, map[string]int{"jwt": 2, "gencsr": 1, "configure": 0, "restart": 0, "shutdown": 0})
	for _, name := range []string{"server.conf", "ssl/certificate.pem"} {
		if _, err := os.Stat(s.nodeFile(denied, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("it has %s: %v", name, err)
		}
	}
	if got := read(t, s.files.Helper+".ran"); got != allowed+"\n" {
		t.Errorf("the helper was asked about %q", got)
	}
	if !slices.ContainsFunc(s.logSince(0), func(l logLine) bool {
		return l.Node == denied && strings.Contains(l.Msg, "certificate signing request")
	}) || !s.logged(`cert_deny_list \"^node-001`) {
		t.Error("the log does not name what was refused and the pattern")
	}
	s.noneTwice()
	s.discreet()
	s.told("denied")
}
