//go:build !unix

package main

import "time"

var processStart = time.Now()

// cpuTime returns the time by the clock, as the system does not report the CPU time
// of the process.
func cpuTime() time.Duration { return time.Since(processStart) }
