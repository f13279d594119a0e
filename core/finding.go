package core

import "context"

// Codes of findings. They are stable.
const (
	// CodeDeadlineIgnored marks a Redis client without ContextTimeoutEnabled.
	CodeDeadlineIgnored = "HG006"

	// CodeEviction marks a Redis server that may evict keys.
	CodeEviction = "HG007"

	// CodePermission marks a Redis user that may not do what the store needs.
	CodePermission = "HG008"

	// CodeNoPrefix marks a store in Redis that was given no prefix, the name of its service.
	CodeNoPrefix = "HG012"

	// CodeOtherLimit marks counts to which two limits are applied.
	CodeOtherLimit = "HG013"

	// CodeBanList marks a Redis user that may not do what lists of bans need. Bans hold
	// without it.
	CodeBanList = "HG014"

	// CodeTooFar marks a server that is too far for the time of a call.
	CodeTooFar = "HG016"
)

// CodeUnanswered marks an incomplete diagnosis, not a mistake: a server did not
// answer a [Diagnoser], which is to be called again. It is never reported to the
// user.
const CodeUnanswered = "HG000"

// Finding is a likely mistake in how a limiter is set up.
type Finding struct {
	Code string // such as CodeDeadlineIgnored
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
