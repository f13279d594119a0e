// Package linear tests that the decisions of stores are linearizable: each decision
// takes effect once, at one instant between the call and its return, also when replies
// are lost.
package linear
