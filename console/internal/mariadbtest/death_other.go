//go:build !linux

package mariadbtest

import "syscall"

// dieWithParent is known to Linux only: elsewhere a server outlives a test
// binary that is killed.
func dieWithParent() *syscall.SysProcAttr { return nil }
