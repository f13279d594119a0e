// Package soak holds a test that goes on for as long as it is told to:
//
//	go test ./internal/soak -args -for 8h
//
// Round after round, many callers want what few can have, of every algorithm and
// from every store, and exactly as many are admitted as there are units. Memory,
// goroutines and keys in Redis must not grow meanwhile.
package soak
