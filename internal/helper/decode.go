package helper

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	stdjson "encoding/json"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const contractRemedy = "make the helper print one JSON object of the documented form and nothing else on standard output"

// Decode reads and checks a helper's output. It is strict where a lenient
// reader would do something that nobody asked for: names are exact, duplicate
// names, invalid UTF-8, trailing data and null are refused. Unknown members are
// accepted, as in the existing provisioner, with a warning. What depends on the
// node and on the site's features is checked by [Run].
func Decode(output []byte) (*Reply, error) {
	reply, err := decode(output)
	if err != nil {
		return nil, err
	}
	return reply, nil
}

func decode(output []byte) (*Reply, *Error) {
	members, ferr := object(output)
	if ferr != nil {
		return nil, ferr
	}
	reply := &Reply{}
	var deferred, shutdown bool
	var claims jsontext.Value
	fields := map[string]any{
		"defer": &deferred, "shutdown": &shutdown, "msg": &reply.Msg,
		"configuration": &reply.Configuration, "server_claims": &claims,
		"action_policies": &reply.ActionPolicies, "opa_policies": &reply.OPAPolicies,
		"key": &reply.Key, "certificate": &reply.Certificate, "ca": &reply.CA, "ssldir": &reply.SSLDir,
		"upgrade": &reply.Upgrade,
	}
	if ferr := reply.fill(members, fields, output); ferr != nil {
		return nil, ferr
	}
	if ferr := reply.setClaims(claims); ferr != nil {
		return nil, ferr
	}
	switch {
	case deferred:
		reply.decision = Defer
	case shutdown:
		reply.decision = Shutdown
	default:
		reply.decision = Configure
		if ferr := reply.checkConfigure(); ferr != nil {
			return nil, ferr
		}
	}
	reply.digest = reply.sum()
	return reply, nil
}

// object splits the output into the members of its one object.
func object(output []byte) (map[string]jsontext.Value, *Error) {
	if len(bytes.TrimSpace(output)) == 0 {
		return nil, failure(ErrNoOutput, "", contractRemedy)
	}
	garbage := func(detail string) *Error {
		return &Error{Kind: ErrGarbage, Detail: detail, Excerpt: excerpt(output), Remedy: contractRemedy}
	}
	if first := bytes.TrimSpace(output)[0]; first != '{' {
		return nil, garbage("not a JSON object")
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(output, &members); err != nil {
		return nil, garbage(plain(err))
	}
	if len(members) == 0 {
		return nil, failure(ErrInvalid, "the object is empty", "set defer, shutdown or configuration")
	}
	return members, nil
}

// fill decodes each member into its field. A name that differs from a known one
// in case only is an error: whether it counts would depend on the reader.
func (r *Reply) fill(members map[string]jsontext.Value, fields map[string]any, output []byte) *Error {
	var unknown []string
	for _, name := range sortedKeys(members) {
		value := members[name]
		target, known := fields[name]
		if !known {
			for other := range fields {
				if strings.EqualFold(name, other) {
					return failure(ErrGarbage, fmt.Sprintf("member %s", quote(name, maxExcerpt)), "write it as "+other)
				}
			}
			unknown = append(unknown, quote(redact(name), 40))
			continue
		}
		if err := json.Unmarshal(value, target); err != nil {
			return &Error{Kind: ErrGarbage, Detail: "member " + name + ": " + plain(err), Excerpt: excerpt(output), Remedy: contractRemedy}
		}
	}
	if len(unknown) > 0 {
		more := ""
		if len(unknown) > 10 {
			unknown, more = unknown[:10], " and more"
		}
		r.warn("members without meaning, ignored: " + strings.Join(unknown, ", ") + more)
	}
	return nil
}

func (r *Reply) setClaims(claims jsontext.Value) *Error {
	switch claims.Kind() {
	case 0, 'n':
		return nil
	case '{':
		if err := claims.Canonicalize(); err != nil {
			return failure(ErrGarbage, "member server_claims: "+plain(err), contractRemedy)
		}
		r.ServerClaims = []byte(claims)
		return nil
	}
	return failure(ErrGarbage, "member server_claims is not an object", "make it an object, as in {\"permissions\":{\"streams\":true}}")
}

// sum hashes what the reply would have done to the node. The standard encoder
// sorts map keys, which makes the form canonical.
func (r *Reply) sum() string {
	form, err := stdjson.Marshal(struct {
		Decision                                   string
		Msg, Key, Certificate, CA, SSLDir, Upgrade string
		Configuration, ActionPolicies, OPAPolicies map[string]string
		ServerClaims                               stdjson.RawMessage
	}{
		r.decision.String(), r.Msg, r.Key, r.Certificate, r.CA, r.SSLDir, r.Upgrade,
		r.Configuration, r.ActionPolicies, r.OPAPolicies, r.ServerClaims,
	})
	if err != nil { // strings, string maps and JSON that was just canonicalized
		panic("helper: a decoded reply cannot be encoded: " + err.Error())
	}
	digest := sha256.Sum256(form)
	return hex.EncodeToString(digest[:])
}

func (r *Reply) warn(text string) { r.Warnings = append(r.Warnings, text) }
