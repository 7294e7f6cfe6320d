package helper

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

const (
	// provisionKey decides whether the node leaves provisioning mode. Unset it
	// falls back to the build's default, which is on for these nodes
	// (go-choria choria/framework.go:207-238).
	provisionKey = "plugin.choria.server.provision"

	// maxLine keeps every line of the node's file readable: its parser stops
	// silently at a line of 64 KiB and ignores all that follows (bufio.Scanner in
	// go-choria config/util.go:161), maybe the line above.
	maxLine = 64<<10 - 64

	// maxPayload bounds what one configure request carries. The layers of a
	// request encode it in base64 twice, and a broker takes 1 MiB.
	maxPayload = 400 << 10

	// ddlConfigLimit is the length that the node's agent declares and neither side
	// enforces (go-choria client/choria_provisionclient/ddl.json).
	ddlConfigLimit = 2048

	maxPolicyName = 128
)

// checkConfigure applies the rules of a reply that configures a node, whichever node it is.
func (r *Reply) checkConfigure() *Error {
	if err := r.checkConfiguration(); err != nil {
		return err
	}
	if err := r.checkPolicies("action_policies", ".policy", r.ActionPolicies); err != nil {
		return err
	}
	if err := r.checkPolicies("opa_policies", ".rego", r.OPAPolicies); err != nil {
		return err
	}
	if err := r.checkTLS(); err != nil {
		return err
	}
	return r.checkSize()
}

// checkConfiguration refuses what the node would write as other lines than the
// helper meant: it prints key=value per line and reads them back trimmed.
func (r *Reply) checkConfiguration() *Error {
	if len(r.Configuration) == 0 {
		return failure(ErrInvalid, "no verdict: defer and shutdown are not set and configuration is empty", "set defer or shutdown, or fill configuration")
	}
	for _, key := range sortedKeys(r.Configuration) {
		value := r.Configuration[key]
		where := "configuration key " + quote(key, 80)
		switch {
		case strings.TrimSpace(key) == "":
			return failure(ErrInvalid, where+" is empty", "remove it")
		case key != strings.TrimSpace(key):
			return failure(ErrInvalid, where+" begins or ends with a space", "trim it")
		case strings.Contains(key, "="):
			return failure(ErrInvalid, where+" holds a =", "write the key alone, the value beside it")
		case strings.HasPrefix(key, "#"):
			return failure(ErrInvalid, where+" begins with #, the node would read a comment", "remove it")
		case strings.ContainsFunc(key, unicode.IsControl):
			return failure(ErrInvalid, where+" holds a control character or line break", "remove it")
		case strings.ContainsFunc(value, unicode.IsControl):
			return failure(ErrInvalid, where+": its value holds a control character or line break", "write the value on one line")
		case len(key)+len(value) > maxLine:
			return failure(ErrInvalid, fmt.Sprintf("%s: key and value have %d bytes, the node reads lines of %d", where, len(key)+len(value), maxLine), "shorten the value or place it in a file")
		}
	}
	return r.checkLeavesProvisioning()
}

// checkLeavesProvisioning refuses a configuration with which the node comes
// back for ever. The words are those of go-choria confkey/confkey.go:477; "on"
// is refused too, since its author meant on. An empty value is a line that the
// node ignores.
func (r *Reply) checkLeavesProvisioning() *Error {
	value, set := r.Configuration[provisionKey]
	word := strings.ToLower(strings.TrimSpace(value))
	switch {
	case !set || word == "":
		return failure(ErrKeepsProvisioning, provisionKey+" is not set", "set it to \"false\"")
	case slices.Contains([]string{"1", "yes", "true", "y", "t", "on"}, word):
		return failure(ErrKeepsProvisioning, provisionKey+" is "+quote(value, 20), "set it to \"false\"")
	case !slices.Contains([]string{"0", "no", "false", "n", "f", "off"}, word):
		r.warn(provisionKey + " is " + quote(redact(value), 40) + ", which a node reads as false: write \"false\"")
	}
	return nil
}

// checkPolicies applies the node's rule for names
// (providers/agent/mcorpc/golang/provision/configure_action.go:171-201), and
// keeps them inside the directory that the node joins them to without looking.
func (r *Reply) checkPolicies(member, suffix string, policies map[string]string) *Error {
	for _, name := range sortedKeys(policies) {
		where := member + " " + quote(name, 80)
		switch {
		case !strings.HasSuffix(name, suffix) || name == suffix:
			return failure(ErrInvalid, where+" is not a file name ending in "+suffix, "name it after its agent, as in rpcutil"+suffix)
		case strings.ContainsAny(name, `/\`) || strings.HasPrefix(name, "."):
			return failure(ErrInvalid, where+" is a path or a hidden file", "write a bare file name")
		case strings.ContainsFunc(name, unicode.IsControl) || len(name) > maxPolicyName:
			return failure(ErrInvalid, where+" holds a control character or is too long", "write a bare file name of at most 128 bytes")
		case policies[name] == "":
			r.warn(where + " is empty, the node does not write it")
		}
	}
	return nil
}

func (r *Reply) checkSize() *Error {
	total := len(r.ServerClaims) + len(r.Key) + len(r.Certificate) + len(r.CA) + len(r.SSLDir)
	for _, m := range []map[string]string{r.Configuration, r.ActionPolicies, r.OPAPolicies} {
		for k, v := range m {
			total += len(k) + len(v)
		}
	}
	if total > maxPayload {
		return failure(ErrInvalid, fmt.Sprintf("configuration, certificates and policies have %d bytes, a request carries %d", total, maxPayload), "shorten them")
	}
	if form, err := json.Marshal(r.Configuration); err == nil && len(form) > ddlConfigLimit {
		r.warn(fmt.Sprintf("the configuration has %d characters, nodes declare %d and do not enforce it today", len(form), ddlConfigLimit))
	}
	return nil
}

// settle compares a reply that configures with what the helper was told and what the site switched on, and completes it.
func (r *Reply) settle(in Input, opts Options) *Error {
	if r.decision != Configure {
		return nil
	}
	if id, set := r.Configuration["identity"]; set && strings.TrimSpace(id) != in.Identity {
		r.warn("the configuration sets identity " + quote(redact(id), 80) + ", the node's tokens are for " + quote(in.Identity, 80))
	}
	if err := r.settleTLS(in, opts); err != nil {
		return err
	}
	if err := r.settleUpgrade(opts); err != nil {
		return err
	}
	r.digest = r.sum()
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
