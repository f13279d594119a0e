//go:build !linux

package redistest

import "syscall"

// dieWithParent returns nil, because only Linux has such a signal: elsewhere a
// server outlives a test binary that is killed.
func dieWithParent() *syscall.SysProcAttr { return nil }
