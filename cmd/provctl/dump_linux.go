package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// keepSecretsInMemory has the kernel write no core of this process, or of the programs that it starts, and keep the memory and the
// environment of this one from other processes of the same user. Call it before the first secret is read. That the process may not be
// dumped ends with an exec, so it does not reach helpers; that a core has no length does.
func keepSecretsInMemory() error {
	var none, limit unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_CORE, nil, &limit); err != nil || limit != none { // a service manager may have done it
		if err := unix.Prlimit(0, unix.RLIMIT_CORE, &none, nil); err != nil {
			return fmt.Errorf("forbid core dumps: %w; have the service manager do it (LimitCORE=0)", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keep this process from being dumped: %w", err)
	}
	return nil
}
