package e2e

import "syscall"

// dieWithParent makes the kernel kill a program when the test binary dies.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
