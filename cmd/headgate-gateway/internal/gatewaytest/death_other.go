//go:build !linux

package gatewaytest

import "syscall"

// dieWithParent returns nil, because only Linux has such a signal.
func dieWithParent() *syscall.SysProcAttr { return nil }
