package caddymw_test

import "syscall"

// dieWithParent has the kernel end a process with the one that started it.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
