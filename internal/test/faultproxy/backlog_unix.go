//go:build !windows

package faultproxy

import "syscall"

// canBlackhole reports whether the kernel leaves attempts to connect without an
// answer while the queue of a listener is full.
const canBlackhole = true

// setBacklog sets how many clients may wait at a listening socket.
func setBacklog(socket uintptr, n int) error { return syscall.Listen(int(socket), n) }
