//go:build unix

package main

import (
	"syscall"
	"time"
)

// cpuTime returns the time that the process has used on all processors. It includes
// the work of the garbage collector for a contender, and no other process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
