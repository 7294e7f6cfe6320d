package choria

import (
	"fmt"

	"provctl/internal/agent"
	"provctl/receipt"
)

// The inputs of the effects; package agent documents them.
type (
	Gen25519Input      = agent.Gen25519
	GenCSRInput        = agent.GenCSR
	ConfigureInput     = agent.Configure
	ReleaseUpdateInput = agent.ReleaseUpdate
	RestartInput       = agent.Restart
	ShutdownInput      = agent.Shutdown
	ConfigMap          = agent.Config
)

// checkInput guards against an input that belongs to another action.
func checkInput(a receipt.Action, input any) error {
	ok := false
	switch input.(type) {
	case Gen25519Input:
		ok = a == receipt.Gen25519
	case GenCSRInput:
		ok = a == receipt.GenCSR
	case ConfigureInput:
		ok = a == receipt.Configure
	case ReleaseUpdateInput:
		ok = a == receipt.ReleaseUpdate
	case RestartInput:
		ok = a == receipt.Restart
	case ShutdownInput:
		ok = a == receipt.Shutdown
	}
	if !ok {
		return fmt.Errorf("%w: %T is no input of %s", ErrMisuse, input, a)
	}
	return nil
}
