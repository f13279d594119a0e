//go:build !linux

package test

// memory returns "", because only Linux has a directory in memory that is always at one place.
func memory() string { return "" }
