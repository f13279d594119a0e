//go:build race

package faults

// atOnce is the number of faults that are inflicted at a time for each processor of Go. The
// race detector leaves none to spare.
const atOnce = 1
