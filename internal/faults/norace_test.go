//go:build !race

package faults

// atOnce is how many faults are inflicted at a time for each processor of Go. They
// wait more than they compute.
const atOnce = 2
