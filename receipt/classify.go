package receipt

import (
	"fmt"
	"strings"
)

// Reply is what a node answered, decoded but not trusted.
type Reply struct {
	Code    int    // mcorpc status code, 0 to 5
	Text    string // status message; for code 0 the data's "message" where the action has one
	Usable  bool   // for actions that return data (gen25519, gencsr): whether the data was complete and well-formed
	Trouble string // why it is not usable or could not be decoded; then nothing else counts
}

// Sources of the lists below: go-choria v0.30.2, prov = providers/agent/mcorpc/golang/provision, mc = providers/agent/mcorpc.
var (
	// beforeAnyAction are rejections that come before the action changes anything, whatever the action.
	beforeAnyAction = []pattern{
		starts(2, "Unknown action "),                                    // mc/agent.go:115
		starts(4, "Could not process request: "),                        // mc/agent.go:106
		starts(4, "Could not parse request data for "),                  // mc/mcorpc.go:101
		starts(4, "Validation failed: "),                                // mc/mcorpc.go:108
		exact(1, "You are not authorized to call this agent or action"), // mc/agent.go:123
		exact(1, "Incorrect provision token supplied"),                  // prov/util.go:32
	}
	locked    = exact(1, "Could not obtain provisioning lock")                           // prov/provision.go:29 and :91
	notInMode = exact(1, "Cannot reconfigure a server that is not in provisioning mode") // prov/configure_action.go:42, csr_action.go:44, ed25519_action.go:36
	refusals  = map[Action][]pattern{
		Gen25519: {
			locked, notInMode,
			exact(1, "Cannot determine where to store secure data, no configure file given"), // prov/ed25519_action.go:41
			starts(1, "could not determine absolute path to config directory: "),             // prov/ed25519_action.go:56
			starts(1, "Could not create keypair: "),                                          // prov/ed25519_action.go:66
		},
		GenCSR: {
			locked, notInMode,
			exact(1, "Cannot determine where to store SSL data, no configure file given and no SSL directory configured"), // prov/csr_action.go:49
		},
		ReleaseUpdate: {
			locked,
			exact(1, "Cannot update a server that is not in provisioning mode"), // prov/release_update_action.go:31
			exact(1, "Version updates is not enabled in the configuration"),     // prov/release_update_action.go:36
		},
		Configure: {
			locked, notInMode,
			exact(1, "Cannot determine the configuration file to manage"),                                   // prov/configure_action.go:47
			exact(1, "Did not receive any configuration to write, cannot write a empty configuration file"), // prov/configure_action.go:61
			exact(1, "EDCH Public Key not supplied while providing a private key"),                          // prov/configure_action.go:66
			starts(1, "Could not decode configuration data: "),                                              // prov/configure_action.go:73
		},
		Restart: {
			exact(1, "Cannot restart a server that is not in provisioning mode or with no token set"), // prov/restart_action.go:35
			{1, func(s string) bool { // prov/restart_action.go:50
				return strings.HasPrefix(s, "Configuration ") && strings.Contains(s, RestartUnparsable+": ")
			}},
			{1, func(s string) bool { // prov/restart_action.go:55
				return strings.HasPrefix(s, "Configuration ") && strings.HasSuffix(s, RestartKeepsProvisioning)
			}},
		},
		Shutdown: {
			exact(1, "Cannot shutdown a server that is not in provisioning mode or with no token set"), // prov/shutdown_action.go:27
		},
	}
	// acceptances are how the texts of code 0 begin.
	acceptances = map[Action]string{
		ReleaseUpdate: "Restarting Choria Server after ",    // prov/release_update_action.go:71
		Configure:     "Wrote ",                             // prov/configure_action.go:113
		Restart:       "Restarting Choria Server after ",    // prov/restart_action.go:68
		Shutdown:      "Shutting Choria Server down after ", // prov/shutdown_action.go:45
	}
)

// Texts inside a refused restart; both prove as well that no usable configuration was written.
const (
	RestartKeepsProvisioning = " enables provisioning, restart cannot continue" // prov/restart_action.go:55
	RestartUnparsable        = " could not be parsed, restart cannot continue"  // prov/restart_action.go:50
)

// UpgradeBroken is in the text of an upgrade that failed and could not be undone: the server's program may be gone
// (prov/release_update_action.go:56).
const UpgradeBroken = "server in broken state"

// pattern is one known rejection: its code and its text.
type pattern struct {
	code int
	is   func(text string) bool
}

// exact is for texts that the node never varies: anything longer is some other text, and not on the list.
func exact(code int, text string) pattern {
	return pattern{code, func(s string) bool { return s == text }}
}

// starts is for texts that end in a reason of their own.
func starts(code int, text string) pattern {
	return pattern{code, func(s string) bool { return strings.HasPrefix(s, text) }}
}

func (p pattern) matches(r Reply) bool { return r.Code == p.code && p.is(r.Text) }

// Classify turns the one reply to an effect into the receipt's event, with a word on why. Only what is on the allow-lists is
// applied or refused; any other error is failed, since code 1 alone does not prove that nothing changed; and what cannot be
// read, or claims success in unknown words, is Lost.
func Classify(a Action, r Reply) (Event, string) {
	switch {
	case r.Trouble != "":
		return Lost, "the reply could not be used: " + r.Trouble
	case r.Code < 0 || r.Code > 5:
		return Lost, fmt.Sprintf("the reply has status code %d, which no agent sends", r.Code)
	case r.Code == 0:
		return classifySuccess(a, r)
	case refused(a, r):
		return ReplyRefused, fmt.Sprintf("the node refused before any change: %.200q", r.Text)
	default:
		return ReplyFailed, fmt.Sprintf("the node failed (code %d), perhaps half way: %.200q", r.Code, r.Text)
	}
}

func classifySuccess(a Action, r Reply) (Event, string) {
	want, hasText := acceptances[a]
	switch {
	case a.Repeatable() && r.Usable: // gen25519 and gencsr answer with data and without a text
		return ReplyApplied, "the node answered with its key"
	case hasText && strings.HasPrefix(r.Text, want):
		return ReplyApplied, fmt.Sprintf("the node answered %.200q", r.Text)
	default:
		return Lost, fmt.Sprintf("the node reports success in words that %s does not use: %.200q", a, r.Text)
	}
}

func refused(a Action, r Reply) bool {
	for _, p := range beforeAnyAction {
		if p.matches(r) {
			return true
		}
	}
	for _, p := range refusals[a] {
		if p.matches(r) {
			return true
		}
	}
	return false
}

// ToldByRestart is what the reply to a restart proves of the configure that it was sent to find out about (VerdictFinish); 0: nothing. A
// node restarts only with a configuration that parses and ends provisioning mode (go-choria v0.30.2
// providers/agent/mcorpc/golang/provision/restart_action.go:48-56).
func ToldByRestart(means Event, text string) Event {
	switch {
	case means == ReplyApplied:
		return ProvedApplied
	case means == ReplyRefused && strings.HasSuffix(text, RestartKeepsProvisioning):
		return ProvedNotDone
	case means == ReplyRefused && strings.Contains(text, RestartUnparsable+": "):
		return ProvedFailed
	default:
		return 0
	}
}

// Tells is what the late reply to a restart proves of a configure: see ToldByRestart.
func (r Receipt) Tells() Event {
	for _, e := range r.Evidence {
		if r.Action == Restart && e.Kind == SawReply {
			return ToldByRestart(e.Reply.Means, e.Reply.Text)
		}
	}
	return 0
}
