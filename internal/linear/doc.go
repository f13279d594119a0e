// Package linear holds the tests which check that the answers to concurrent
// callers can be put into one order: that each decision took effect once, at
// one instant between the call and its return, also when replies are lost.
package linear
