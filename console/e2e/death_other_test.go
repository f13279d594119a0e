//go:build !linux

package e2e

import "syscall"

// dieWithParent is known to Linux only: elsewhere a program outlives a test binary
// that is killed.
func dieWithParent() *syscall.SysProcAttr { return nil }
