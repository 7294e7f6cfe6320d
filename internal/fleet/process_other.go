//go:build !linux

package fleet

import "syscall"

// processAttributes keeps the signals of a terminal from the nodes; the end of their control channel ends them.
func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
