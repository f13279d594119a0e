// Package soak holds a test that runs for the time of its flag:
//
//	go test ./internal/soak -args -for 8h
//
// Round after round, many callers compete for few units, under every algorithm
// and at every store, and exactly as many are admitted as there are units.
// Memory, goroutines and keys in Redis must not grow meanwhile.
package soak
