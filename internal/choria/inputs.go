package choria

import (
	"fmt"

	"provctl/internal/agent"
	"provctl/receipt"
)

// checkInput guards against an input that belongs to another action.
func checkInput(a receipt.Action, input any) error {
	ok := false
	switch input.(type) {
	case agent.Gen25519:
		ok = a == receipt.Gen25519
	case agent.GenCSR:
		ok = a == receipt.GenCSR
	case agent.Configure:
		ok = a == receipt.Configure
	case agent.ReleaseUpdate:
		ok = a == receipt.ReleaseUpdate
	case agent.Restart:
		ok = a == receipt.Restart
	case agent.Shutdown:
		ok = a == receipt.Shutdown
	}
	if !ok {
		return fmt.Errorf("%w: %T is no input of %s", ErrMisuse, input, a)
	}
	return nil
}
