// Package linear holds the tests which check that what concurrent callers were
// told can be put into one order: that each decision took effect once, at one
// instant between the call and its return, also when replies are lost.
package linear
