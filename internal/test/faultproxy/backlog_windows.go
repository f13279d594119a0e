package faultproxy

import "syscall"

// canBlackhole is false, as Windows refuses attempts to connect while the queue of
// a listener is full.
const canBlackhole = false

// setBacklog sets how many clients may wait at a listening socket.
func setBacklog(socket uintptr, n int) error { return syscall.Listen(syscall.Handle(socket), n) }
