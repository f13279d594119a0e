//go:build !unix

package main

import "time"

var began = time.Now()

// cpuTime is the time by the clock, where that of the process is not known.
func cpuTime() time.Duration { return time.Since(began) }
