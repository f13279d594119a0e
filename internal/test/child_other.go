//go:build !linux

package test

import "syscall"

// dieWithParent returns nil, because only Linux has such a signal: elsewhere a
// program outlives a test binary that is killed.
func dieWithParent() *syscall.SysProcAttr { return nil }
