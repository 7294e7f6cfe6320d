package credentials

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"net"
	"net/url"
)

// name is one name in a request or certificate.
type name struct {
	kind  string   // as an operator knows it
	text  string   // as written
	forms []string // what a reader may take it for; a pattern that matches one denies the name
}

var (
	oidCommonName  = asn1.ObjectIdentifier{2, 5, 4, 3}
	oidEmail       = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 1}
	oidAltName     = asn1.ObjectIdentifier{2, 5, 29, 17}
	oidExtRequest  = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 14}
	errNotDER      = errors.New("it is not well-formed DER")
	sanKinds       = map[int]string{1: "email", 2: "DNS", 6: "URI", 7: "IP"} // GeneralName of RFC 5280
	otherNameKinds = map[int]string{0: "otherName", 3: "x400Address", 4: "directoryName", 5: "ediPartyName", 8: "registeredID"}
)

// subjectAndNames checks that a subject's one common name is the identity, byte for byte, and returns all names that count.
// The names are read here and not by crypto/x509, which passes over kinds that it does not know and keeps one common name of
// several.
func subjectAndNames(rawSubject []byte, extensions []pkix.Extension, identity string) ([]name, error) {
	names, err := subjectNames(rawSubject)
	if err != nil {
		return nil, err
	}
	var cn []string
	for _, n := range names {
		if n.kind == "CN" {
			cn = append(cn, n.text)
		}
	}
	switch {
	case identity == "":
		return nil, errors.New("no identity to compare it with")
	case len(cn) != 1:
		return nil, fmt.Errorf("its subject has %d common names, not one", len(cn))
	case cn[0] != identity:
		return nil, fmt.Errorf("its common name is %s, the node is %s", short(cn[0]), short(identity))
	}
	for _, e := range extensions { // crypto/x509 refuses one that comes twice
		if !e.Id.Equal(oidAltName) {
			continue
		}
		alt, err := altNames(e.Value)
		if err != nil {
			return nil, err
		}
		names = append(names, alt...)
	}
	return names, nil
}

// subjectNames returns the common names and email addresses of a subject. The other parts name no one to Choria.
func subjectNames(raw []byte) ([]name, error) {
	rdns, err := sequence(raw)
	if err != nil {
		return nil, err
	}
	var out []name
	for _, rdn := range rdns {
		attributes, err := elements(rdn.Bytes)
		if err != nil {
			return nil, err
		}
		for _, a := range attributes {
			oid, value, err := attribute(a)
			if err != nil {
				return nil, err
			}
			kind := ""
			switch {
			case oid.Equal(oidCommonName):
				kind = "CN"
			case oid.Equal(oidEmail):
				kind = "email"
			default:
				continue
			}
			switch value.Tag {
			case asn1.TagPrintableString, asn1.TagUTF8String, asn1.TagIA5String:
			default: // two bytes a character and worse: readers differ about what it says
				return nil, fmt.Errorf("the %s in its subject is neither a printable, UTF-8 nor IA5 string", kind)
			}
			text, err := ascii(kind, value)
			if err != nil {
				return nil, err
			}
			out = append(out, name{kind: kind, text: text, forms: []string{text}})
		}
	}
	return out, nil
}

// altNames reads the value of a subject alternative name extension.
func altNames(value []byte) ([]name, error) {
	list, err := sequence(value)
	if err != nil {
		return nil, err
	}
	var out []name
	for _, v := range list {
		kind, known := sanKinds[v.Tag]
		if v.Class != asn1.ClassContextSpecific || !known {
			return nil, fmt.Errorf("it has an alternative name of a kind that cannot be checked: %s", cmp.Or(otherNameKinds[v.Tag], "unknown"))
		}
		n := name{kind: kind}
		if kind == "IP" {
			if len(v.Bytes) != net.IPv4len && len(v.Bytes) != net.IPv6len {
				return nil, fmt.Errorf("it has an IP address of %d bytes", len(v.Bytes))
			}
			n.text = net.IP(v.Bytes).String()
			n.forms = []string{n.text}
			out = append(out, n)
			continue
		}
		if n.text, err = ascii(kind, v); err != nil {
			return nil, err
		}
		n.forms = []string{n.text}
		if kind == "URI" {
			more, err := uriForms(n.text)
			if err != nil {
				return nil, err
			}
			n.forms = append(n.forms, more...)
		}
		out = append(out, n)
	}
	return out, nil
}

// uriForms are the parts of a URI that a pattern for host names is meant for, and the URI without its escapes.
func uriForms(text string) ([]string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the URI %s cannot be read", short(text))
	}
	bare, err := url.PathUnescape(text)
	if err != nil {
		return nil, fmt.Errorf("the URI %s cannot be read", short(text))
	}
	return []string{u.Hostname(), bare}, nil
}

// ascii takes a name only if all readers see the same: no NUL, no control characters, nothing beyond ASCII.
func ascii(kind string, value asn1.RawValue) (string, error) {
	raw := value.Bytes
	if value.IsCompound {
		return "", errNotDER
	}
	if len(raw) == 0 {
		return "", fmt.Errorf("a name in it, kind %s, is empty", kind)
	}
	if i := bytes.IndexFunc(raw, func(r rune) bool { return r < ' ' || r > '~' }); i >= 0 {
		return "", fmt.Errorf("the %s name %s holds a control character, or one beyond ASCII, at byte %d", kind, short(string(raw)), i)
	}
	return string(raw), nil
}

// sequence returns the elements of exactly one SEQUENCE.
func sequence(der []byte) ([]asn1.RawValue, error) {
	var outer asn1.RawValue
	rest, err := asn1.Unmarshal(der, &outer)
	if err != nil || len(rest) > 0 || outer.Class != asn1.ClassUniversal || outer.Tag != asn1.TagSequence || !outer.IsCompound {
		return nil, errNotDER
	}
	return elements(outer.Bytes)
}

// attribute splits a pair of a type and its value.
func attribute(v asn1.RawValue) (oid asn1.ObjectIdentifier, value asn1.RawValue, err error) {
	pair, err := elements(v.Bytes)
	if err != nil || len(pair) != 2 {
		return nil, value, errNotDER
	}
	if _, err := asn1.Unmarshal(pair[0].FullBytes, &oid); err != nil {
		return nil, value, errNotDER
	}
	return oid, pair[1], nil
}

// elements splits the content of a constructed value.
func elements(der []byte) ([]asn1.RawValue, error) {
	var out []asn1.RawValue
	for len(der) > 0 {
		var v asn1.RawValue
		rest, err := asn1.Unmarshal(der, &v)
		if err != nil {
			return nil, errNotDER
		}
		out, der = append(out, v), rest
	}
	return out, nil
}

// checkKey refuses keys that are weak, and ones with which Go's TLS does not talk (crypto/tls takes no RSA key above 8192 bits).
func checkKey(key crypto.PublicKey) error {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < 2048 || bits > 8192 {
			return fmt.Errorf("its RSA key has %d bits, 2048 to 8192 are accepted", bits)
		}
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() && k.Curve != elliptic.P384() && k.Curve != elliptic.P521() {
			return fmt.Errorf("its ECDSA curve is %s, P-256, P-384 and P-521 are accepted", k.Curve.Params().Name)
		}
	case ed25519.PublicKey:
	default:
		return errors.New("its key is neither RSA, ECDSA nor ed25519")
	}
	return nil
}
