package credentials_test

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"

	"provctl/internal/credentials"
)

type csrCase struct {
	name, pem string
	kind      error // nil: accepted
	text      string
}

func csrCases() []csrCase {
	k := testKeys()
	good := request(k.rsa, nil)
	goodPEM := csrPEM(good)
	asking := func(edit func(*x509.CertificateRequest)) string { return csrPEM(request(k.rsa, edit)) }
	tampered := bytes.Replace(good, []byte("n1.example"), []byte("n2.example"), 1)
	badSignature := bytes.Clone(good)
	badSignature[len(badSignature)-1] ^= 1
	extRequest, ms := asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 14}, asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 311, 2, 1, 14}
	san := []pkix.Extension{altNames(general(2, "x.choria"))}
	empty := []pkix.Extension{altNames(general(2, "fine.example.net"))}
	e, denied := credentials.ErrCSR, credentials.ErrDenied
	return []csrCase{
		{"RSA", goodPEM, nil, ""},
		{"ECDSA", csrPEM(request(k.ec, nil)), nil, ""},
		{"ed25519", csrPEM(request(k.ed, nil)), nil, ""},
		{"RSA-PSS", asking(func(c *x509.CertificateRequest) { c.SignatureAlgorithm = x509.SHA384WithRSAPSS }), nil, ""},
		{"white space around, CRLF", " \n" + strings.ReplaceAll(goodPEM, "\n", "\r\n") + "\n\t", nil, ""},
		{"harmless names", asking(func(c *x509.CertificateRequest) {
			c.DNSNames, c.EmailAddresses, c.IPAddresses = []string{nodeName}, []string{"ops@example.net"}, []net.IP{net.IPv4(10, 0, 0, 1), net.ParseIP("::1")}
			c.URIs = []*url.URL{mustURL("https://n1.example.net/x")}
		}), nil, ""},
		{"subject with an organization", asking(func(c *x509.CertificateRequest) { c.Subject.Organization = []string{"x.choria"} }), nil, ""},

		{"nothing", "", e, "not PEM"},
		{"not PEM", "hello", e, "not PEM"},
		{"nil block", "-----BEGIN CERTIFICATE REQUEST-----\n!\n-----END CERTIFICATE REQUEST-----\n", e, "not PEM"},
		{"other block", string(block("CERTIFICATE", good, nil)), e, `"CERTIFICATE"`},
		{"empty block", csrPEM(nil), e, ""},
		{"garbage inside", csrPEM([]byte("hello")), e, "cannot be parsed"},
		{"cut", csrPEM(good[:len(good)-9]), e, "cannot be parsed"},
		{"garbage after", goodPEM + "x", e, "more in it"},
		{"garbage before", "x\n" + goodPEM, e, "more in it"},
		{"two requests", goodPEM + goodPEM, e, "more in it"},
		{"a block that is skipped first", "-----BEGIN CERTIFICATE REQUEST-----\n!\n-----END CERTIFICATE REQUEST-----\n" + goodPEM, e, "more in it"},
		{"headers", strings.Replace(goodPEM, "-----\n", "-----\nA: b\n\n", 1), e, "headers"},
		{"trailing bytes in the block", csrPEM(append(bytes.Clone(good), 0)), e, "cannot be parsed"},
		{"huge", goodPEM + strings.Repeat("\n", 16<<10), e, "16384 are accepted"},
		{"tampered name", csrPEM(tampered), e, "not by its key"},
		{"tampered signature", csrPEM(badSignature), e, "not by its key"},

		{"RSA 1024", csrPEM(request(k.small, nil)), e, "1024 bits"},
		{"ECDSA P-224", csrPEM(request(k.p224, nil)), e, "P-224"},
		{"SHA-1", csrPEM(sha1Request()), e, "SHA1-RSA"},

		{"another CN", asking(func(c *x509.CertificateRequest) { c.Subject.CommonName = "n2.example.net" }), e, `common name is "n2.example.net"`},
		{"CN in capitals", asking(func(c *x509.CertificateRequest) { c.Subject.CommonName = "N1.example.net" }), e, "common name is"},
		{"no CN", asking(func(c *x509.CertificateRequest) { c.Subject = pkix.Name{Organization: []string{"x"}} }), e, "0 common names"},
		{"two CNs in one set", asking(rawSubject(cn(nodeName), cn("root"))), e, "2 common names"},
		{"two CNs, the same", asking(rawSubject(cn(nodeName), cn(nodeName))), e, "2 common names"},
		{"two CNs apart", asking(func(c *x509.CertificateRequest) {
			c.RawSubject = must(asn1.Marshal(pkix.RDNSequence{{cn("root")}, {cn(nodeName)}}))
		}), e, "2 common names"},
		{"NUL in the CN", asking(func(c *x509.CertificateRequest) { c.Subject.CommonName = nodeName + "\x00.choria" }), e, "control character"},
		{"CN in two-byte characters", asking(rawSubject(cn(asn1.RawValue{Tag: asn1.TagBMPString, Bytes: []byte("\x00n\x001")}))), e, "neither"},
		{"CN beyond ASCII", asking(func(c *x509.CertificateRequest) { c.Subject.CommonName = "n1.exаmple.net" }), e, "beyond ASCII"},

		{"DNS denied", asking(func(c *x509.CertificateRequest) { c.DNSNames = []string{nodeName, "rip.choria"} }), denied, `DNS "rip.choria"`},
		{"DNS denied in capitals", asking(func(c *x509.CertificateRequest) { c.DNSNames = []string{"rip.CHORIA"} }), denied, "rip.CHORIA"},
		{"DNS denied with a dot", asking(extra(general(2, "rip.choria."))), denied, "rip.choria."},
		{"DNS denied by a pattern in slashes", asking(func(c *x509.CertificateRequest) { c.DNSNames = []string{"slash-name.example.net"} }), denied, "^slash-"},
		{"IP denied", asking(func(c *x509.CertificateRequest) { c.IPAddresses = []net.IP{net.IPv4(192, 0, 2, 7)} }), denied, "IP"},
		{"IP denied, mapped", asking(extra(general(7, string(net.IPv4(192, 0, 2, 7).To16())))), denied, "IP"},
		{"URI denied", asking(func(c *x509.CertificateRequest) { c.URIs = []*url.URL{mustURL("choria:rip.choria")} }), denied, "URI"},
		{"URI denied by its host", asking(func(c *x509.CertificateRequest) { c.URIs = []*url.URL{mustURL("https://rip.choria:1/x")} }), denied, "URI"},
		{"URI denied without its escapes", asking(extra(general(6, "choria:rip%2Echoria"))), denied, "URI"},
		{"URI unreadable", asking(extra(general(6, "http://[::1"))), e, ""},
		{"email denied", asking(func(c *x509.CertificateRequest) { c.EmailAddresses = []string{"rip@x.choria"} }), denied, "email"},
		{"email in the subject denied", asking(rawSubject(cn(nodeName), pkix.AttributeTypeAndValue{
			Type: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 1}, Value: "rip@x.choria",
		})), denied, "email"},
		{"otherName", asking(extra(general(0, "\x06\x03\x2a\x03\x04"))), e, "otherName"},
		{"directoryName", asking(extra(general(4, "\x30\x00"))), e, "directoryName"},
		{"registeredID", asking(extra(general(8, "\x2a\x03"))), e, "registeredID"},
		{"unknown kind", asking(extra(general(9, "x"))), e, "unknown"},
		{"a kind behind a good one", asking(extra(general(2, nodeName), general(0, "\x06\x03\x2a\x03\x04"))), e, "otherName"},
		{"NUL in a DNS name", asking(extra(general(2, "x\x00.choria"))), e, "control character"},
		{"DNS name in parts", asking(extra(asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 2, IsCompound: true, Bytes: []byte("\x16\x01x")})), e, "DER"},
		{"URI with a bad escape", asking(extra(general(6, "choria:x%zz"))), e, "cannot be read"},
		{"empty DNS name", asking(extra(general(2, ""))), e, "is empty"},
		{"IP of 5 bytes", asking(extra(general(7, "12345"))), e, ""},

		{"asks to be a CA", asking(func(c *x509.CertificateRequest) {
			c.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Value: []byte{0x30, 3, 1, 1, 0xff}}}
		}), e, "2.5.29.19"},
		{"no attributes, made by hand", csrPEM(withAttributes()), nil, ""},
		{"names, made by hand", csrPEM(withAttributes(attributeOf{extRequest, []any{empty}})), nil, ""},
		{"names in another vendor's attribute", csrPEM(withAttributes(attributeOf{ms, []any{san}})), e, "1.3.6.1.4.1.311.2.1.14"},
		{"challenge password", csrPEM(withAttributes(attributeOf{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 7}, []any{"x"}})), e, "1.9.7"},
		{"names in a second attribute", csrPEM(withAttributes(attributeOf{extRequest, []any{empty}}, attributeOf{extRequest, []any{san}})), e, ""},
		{"a second attribute", csrPEM(withAttributes(attributeOf{extRequest, []any{empty}}, attributeOf{extRequest, []any{[]pkix.Extension{}}})), e, "2 attributes"},
		{"names in a second value", csrPEM(withAttributes(attributeOf{extRequest, []any{empty, san}})), e, "not one"},
		{"two lists of names", csrPEM(withAttributes(attributeOf{extRequest, []any{append(empty[:1:1], san...)}})), e, ""},
		{"an attribute that does not parse", csrPEM(withAttributes(7)), e, "DER"},
	}
}

var siteDenies = []string{`\.choria$`, `/^slash-/`, `^192\.0\.2\.`}

func TestCheckCSR(t *testing.T) {
	d := denyList(t, siteDenies...)
	for _, tt := range csrCases() {
		t.Run(tt.name, func(t *testing.T) {
			key, err := d.CheckCSR(tt.pem, nodeName)
			if !errors.Is(err, tt.kind) || (key != nil) != (tt.kind == nil) {
				t.Fatalf("got %v, %v, want %v", key, err, tt.kind)
			}
			if tt.kind != nil {
				checkText(t, err, tt.text)
			}
		})
	}
}

// checkText checks that an error is one line fit for an operator and says what was expected.
func checkText(t *testing.T, err error, text string) {
	t.Helper()
	var e *credentials.Error
	if !errors.As(err, &e) || e.Remedy == "" || !strings.Contains(err.Error(), text) || strings.ContainsAny(err.Error(), "\n\x00") || len(err.Error()) > 700 {
		t.Errorf("got %v, want it to say %q", err, text)
	}
}

func TestCheckCSRReturnsTheKey(t *testing.T) {
	k := testKeys()
	d := denyList(t)
	for _, signer := range []crypto.Signer{k.rsa, k.ec, k.ed} {
		key, err := d.CheckCSR(csrPEM(request(signer, nil)), nodeName)
		if err != nil || !signer.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(key) {
			t.Errorf("%T: got %v, %v", signer, key, err)
		}
	}
}

func TestCheckCSRDeniesTheIdentity(t *testing.T) {
	const identity = "rip.choria"
	csr := csrPEM(request(testKeys().rsa, func(c *x509.CertificateRequest) { c.Subject.CommonName = identity }))
	if _, err := denyList(t, `\.choria$`).CheckCSR(csr, identity); !errors.Is(err, credentials.ErrDenied) {
		t.Errorf("denied identity: %v", err)
	}
	if _, err := denyList(t).CheckCSR(csr, identity); err != nil {
		t.Errorf("nothing denied: %v", err)
	}
	if _, err := denyList(t).CheckCSR(csr, ""); !errors.Is(err, credentials.ErrCSR) {
		t.Errorf("no identity: %v", err)
	}
	for _, d := range []*credentials.DenyList{nil, {}} {
		if _, err := d.CheckCSR(csr, identity); !errors.Is(err, credentials.ErrDenyList) {
			t.Errorf("a deny list that was not compiled allows: %v", err)
		}
	}
}

func TestCompileDenyList(t *testing.T) {
	tests := []struct {
		name, pattern, text string // text: of the error; empty: it compiles
		denies, allows      string
	}{
		{"plain", `\.choria$`, "", "x.choria", "x.choria.net"},
		{"not anchored", `adm`, "", "my.admin.net", "x.net"},
		{"slashes", `/^adm/`, "", "admin", "my.admin"},
		{"several slashes", `//^adm//`, "", "admin", "/adm/"},
		{"slash inside", `a/b`, "", "a/b", "ab"},
		{"one slash", `/`, "", "a/b", "ab"},
		{"empty", "", "is empty", "", ""},
		{"only slashes", "///", "is empty", "", ""},
		{"broken", `a(`, `cert_deny_list[1] "a("`, "", ""},
		{"broken in slashes", `/a(/`, "missing closing )", "", ""},
		{"lookahead of another dialect", `(?!x)`, "cert_deny_list[1]", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := credentials.CompileDenyList([]string{"^never$", tt.pattern})
			if tt.text != "" {
				if d != nil || !errors.Is(err, credentials.ErrDenyList) {
					t.Fatalf("got %v, %v", d, err)
				}
				checkText(t, err, tt.text)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for host, want := range map[string]error{tt.denies: credentials.ErrDenied, tt.allows: nil} {
				csr := csrPEM(request(testKeys().ec, func(c *x509.CertificateRequest) { c.DNSNames = []string{host} }))
				if _, err := d.CheckCSR(csr, nodeName); !errors.Is(err, want) {
					t.Errorf("%s: got %v, want %v", host, err, want)
				}
			}
		})
	}
}

// FuzzCheckCSR: whatever a node sends is refused with one line, or is a request that crypto/x509 verifies and whose names,
// as it reads them, are the identity and none of the denied.
func FuzzCheckCSR(f *testing.F) {
	for _, c := range csrCases() {
		if len(c.pem) < 4096 {
			f.Add(c.pem)
		}
	}
	d := denyList(f, siteDenies...)
	f.Fuzz(func(t *testing.T, text string) {
		key, err := d.CheckCSR(text, nodeName)
		if err != nil {
			checkText(t, err, "")
			return
		}
		b, rest := pemDecode(text)
		if key == nil || len(bytes.TrimSpace(rest)) > 0 {
			t.Fatalf("accepted %q", text)
		}
		csr, err := x509.ParseCertificateRequest(b)
		if err != nil || csr.CheckSignature() != nil || csr.Subject.CommonName != nodeName {
			t.Fatalf("accepted %q: %v", text, err)
		}
		for _, n := range append(csr.DNSNames, csr.EmailAddresses...) {
			if strings.HasSuffix(n, ".choria") {
				t.Fatalf("accepted the name %q", n)
			}
		}
	})
}
