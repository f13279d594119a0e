package core

import "context"

// CodeUnanswered marks an incomplete diagnosis, not a mistake: a server did not
// answer a [Diagnoser], which is to be called again. It is never reported to the
// user.
const CodeUnanswered = "HG000"

// Finding is a likely mistake in how a limiter is set up.
type Finding struct {
	Code string // such as "HG006"; a store lists its own
	Rule string // the rule's name, or "" if it is about no single rule
	Text string // one line, written by the program and never by a client
}

// Diagnoser is a [Store] that can look for mistakes in its own set-up.
type Diagnoser interface {
	// Diagnose returns its findings and stops when ctx ends. rules has, for each rule
	// in force, a Take with the rule's name and limit and without a key. A limiter
	// calls Diagnose in the background of the first request, and then of one request
	// a minute, because set-ups change. After a finding with [CodeUnanswered] it calls
	// Diagnose again after a second at the earliest, then two, four and so on up to an
	// hour.
	Diagnose(ctx context.Context, rules []Op) []Finding
}
