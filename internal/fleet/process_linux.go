package fleet

import "syscall"

// processAttributes makes nodes die with their fleet even where their control channel cannot tell them, and keeps the
// signals of a terminal from them.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
