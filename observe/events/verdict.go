package events

// Verdict is what became of a request, or of a request under one rule. The text of each is a
// value of the attribute headgate.result.
type Verdict uint8

const (
	// Allowed: within the limit, and without a wait. A request to which no rule applies is
	// allowed too, and so is a preflight that passes uncounted.
	Allowed Verdict = iota

	// Waited: allowed after a wait.
	Waited

	// Degraded: over the limit of a Degrade rule. The request passes marked, unless
	// another rule refuses it.
	Degraded

	// ShadowRefused: over the limit of a Shadow rule, or denied by its Access. The request
	// passes, unless another rule refuses it.
	ShadowRefused

	// FailedOpen: neither the store nor its fallback decided, or a function of the rule
	// failed, and the rule lets requests pass then. The request passes, unless another rule
	// refuses it.
	FailedOpen

	// Refused: over the limit. A request whose wait was ended by the end of its limiter is
	// refused too.
	Refused

	// Banned: refused because of a ban. The request whose refusal begins a ban is the first.
	Banned

	// Impossible: refused because it costs more than the limit can ever hold.
	Impossible

	// Denied: refused by Rule.Access, without a call of the store.
	Denied

	// QueueFull: over the limit, and as many requests wait as may.
	QueueFull

	// Canceled: the caller left, or the deadline of a request that waited passed, before
	// there was an answer. Units that were booked are given back.
	Canceled

	// FailedClosed: neither the store nor its fallback decided, or a function of the rule
	// failed, and the rule turns requests away then.
	FailedClosed

	// Overruled is of a rule alone: it would let the request pass, which another rule does
	// not, and charges nothing.
	Overruled
)

// Verdicts is the number of verdicts, for arrays of counters: each Verdict is below it.
const Verdicts = int(Overruled) + 1

var verdicts = [Verdicts]string{"allowed", "waited", "degraded", "shadow_refused", "failed_open", "refused", "banned",
	"impossible", "denied", "queue_full", "canceled", "failed_closed", "overruled"}

// String returns the verdict in lower case, such as "shadow_refused".
func (v Verdict) String() string {
	if int(v) < len(verdicts) {
		return verdicts[v]
	}
	return "unknown verdict"
}

// Passes reports whether a request with the verdict passes. As the verdict of a rule it
// reports whether the rule lets the request pass.
func (v Verdict) Passes() bool { return v <= FailedOpen || v == Overruled }
