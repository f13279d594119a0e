package faultproxy

import "syscall"

// errReset and errRefused are what the kernel says of a connection that was reset
// and of a port that is closed.
const (
	errReset   = syscall.WSAECONNRESET
	errRefused = syscall.Errno(10061) // WSAECONNREFUSED
)
