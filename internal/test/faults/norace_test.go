//go:build !race

package faults

// atOnce is the number of faults that are inflicted at a time for each processor of Go. They
// wait more than they compute.
const atOnce = 2
