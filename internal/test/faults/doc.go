// Package faults holds the fault suite: tests that put a limiter under load, break what it depends
// on, and check its promises meanwhile and afterwards. verdict_test.go lists the promises, and
// suite_test.go says how the suite is run.
package faults
