// Package faults holds the fault suite: tests that put a limiter under load,
// break what it depends on in every way that is listed here, and check its
// promises meanwhile and afterwards:
//
//   - a request is counted at most once, and an answered request exactly once,
//   - a request that is settled is charged what it used, and one whose settlement is lost
//     its estimate or what it used, and neither of them twice,
//   - no more is admitted than the limit, and one limit more each time that the
//     server forgets,
//   - a request that Redis could not decide passes or gets a 503 with Retry-After,
//     as configured, and never a 429,
//   - a fault that must not affect requests leaves none undecided,
//   - Redis decides again after the fault,
//   - no goroutine is left, and no key without a time to live.
//
// Two promises are about time, and a busy machine breaks them without a fault
// of the limiter. They are measured and printed, and fail no test:
//
//   - no request is delayed for longer than the store's timeout and 20 ms,
//   - Redis decides again soon after the fault is over.
//
// The suite is run as
//
//	go test ./internal/faults
//	HEADGATE_LONG=1 go test ./internal/faults
//	HEADGATE_LONG=1 go test ./internal/faults -run 'Faults/standalone/garbage' -count=20
//	go test ./internal/faults -count=5 -timeout 60m -args -table $PWD/docs/faults.md
//
// and needs redis-server. The first form inflicts a few faults and the second all
// of them. The last writes what was measured as a table: the worst of all runs.
package faults
