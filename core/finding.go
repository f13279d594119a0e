package core

import "context"

// Codes of findings. They do not change.
const (
	// CodeDeadlineIgnored: a Redis client without ContextTimeoutEnabled.
	CodeDeadlineIgnored = "HG006"

	// CodeEviction: a Redis server that may evict keys.
	CodeEviction = "HG007"

	// CodePermission: a Redis user that may not do what the store needs.
	CodePermission = "HG008"
)

// CodeUnanswered is no mistake and is never told: a [Diagnoser] could not look
// at everything, as a server did not answer, and wants to be asked again.
const CodeUnanswered = "HG000"

// Finding is a likely mistake in how a limiter is set up.
type Finding struct {
	Code string // such as CodeOneKey
	Rule string // the rule's name, or "" if it is about no single rule
	Text string // one line of the program's own, never what a client sent
}

// Diagnoser is a [Store] that can look for mistakes in its own set-up.
type Diagnoser interface {
	// Diagnose returns what it finds until ctx ends. What it may not look at is no
	// finding. A limiter calls it beside the first request, which does not wait
	// for it, and, after a finding with [CodeUnanswered], again beside a later one:
	// a second later at the earliest, then two, four and so on up to an hour.
	Diagnose(ctx context.Context) []Finding
}
