// Package soak holds a test that runs for the time of its flag. Round after round, many callers
// compete for few units, under every algorithm and at every store, and exactly as many are admitted
// as there are units. Memory, goroutines and keys in Redis must not grow meanwhile.
package soak

// The test is run as
//
//	go test ./internal/test/soak -args -for 8h
