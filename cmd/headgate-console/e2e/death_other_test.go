//go:build !linux

package e2e

import "syscall"

// dieWithParent does nothing, because only Linux kills a child with its parent. On
// other systems a program outlives a test binary that is killed.
func dieWithParent() *syscall.SysProcAttr { return nil }
