package receipt

import "fmt"

// Action is an effect that a node is asked for. Values are stored: append only, never renumber.
type Action uint8

// The effects of the choria_provision agent.
const (
	Gen25519      Action = 1 // makes an ed25519 key, removes server.jwt
	GenCSR        Action = 2 // makes a key and a certificate signing request
	ReleaseUpdate Action = 3 // replaces the server's binary and restarts: "upgrade"
	Configure     Action = 4 // writes the configuration, token and policies
	Restart       Action = 5 // restarts into the written configuration
	Shutdown      Action = 6 // ends the server process
)

var actionNames = map[Action]string{
	Gen25519: "gen25519", GenCSR: "gencsr", ReleaseUpdate: "release_update",
	Configure: "configure", Restart: "restart", Shutdown: "shutdown",
}

// Actions lists every effect, in the order of their numbers.
func Actions() []Action {
	return []Action{Gen25519, GenCSR, ReleaseUpdate, Configure, Restart, Shutdown}
}

// String is the action's name on the wire.
func (a Action) String() string { return nameOf(actionNames, a, "action") }

// MarshalText stores the action by name.
func (a Action) MarshalText() ([]byte, error) { return marshalName(actionNames, a, "action") }

// UnmarshalText reads an action's name; an unknown one is an error.
func (a *Action) UnmarshalText(b []byte) error { return unmarshalName(actionNames, a, b, "action") }

// Repeatable reports whether the action may be sent again although an earlier outcome is unknown, as long as no configure
// receipt exists for the incarnation: key generation only replaces what nothing uses yet.
func (a Action) Repeatable() bool { return a == Gen25519 || a == GenCSR }

// nameOf, marshalName and unmarshalName give every stored enumeration the same strict text form.
func nameOf[T ~uint8](names map[T]string, v T, kind string) string {
	if n, ok := names[v]; ok {
		return n
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(v))
}

func marshalName[T ~uint8](names map[T]string, v T, kind string) ([]byte, error) {
	n, ok := names[v]
	if !ok {
		return nil, fmt.Errorf("%w: %s %d has no name", ErrInvalid, kind, uint8(v))
	}
	return []byte(n), nil
}

func unmarshalName[T ~uint8](names map[T]string, v *T, b []byte, kind string) error {
	for k, n := range names {
		if n == string(b) {
			*v = k
			return nil
		}
	}
	return fmt.Errorf("%w: %.40q is no %s", ErrInvalid, b, kind)
}
