package rpc

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// Refusal is the error of a call that a limiter does not let pass. It holds nothing that
// the client sent.
type Refusal struct {
	Code    Code
	Message string

	// RetryAfter is the time until the same call would be admitted if no other came,
	// and 0 if no retry can succeed.
	RetryAfter time.Duration

	// Violations are the rules that refused the call for a while.
	Violations []Violation
}

// Violation is one rule that refused a call.
type Violation struct{ Rule, Description string }

// RefusalOf returns the error for a call that does not pass.
func RefusalOf(a *limiter.Admission) Refusal {
	r := Refusal{Code: codeOf(a), RetryAfter: retryAfter(a)}
	names, res := a.Violated(), a.Result()
	quoted := `"` + strings.Join(names, `", "`) + `"`

	switch outcome := a.Outcome(); {
	case outcome == limiter.Failed:
		r.Message = "the limiter cannot decide"
	case outcome == limiter.QueueFull:
		r.Message = "too many requests wait already for " + quoted
	case res.Denied():
		r.Message = "denied by " + quoted // for good, so there is no time to wait and no quota
		return r
	case res.Banned():
		r.Message = "banned by " + quoted + " for abnormal usage"
	case a.Status() == 503:
		r.Message = "the store is away, and this server alone cannot admit as much by " + quoted
	case r.RetryAfter == 0:
		r.Message = "the request asks for more than " + quoted + " can ever hold"
	default:
		r.Message = "over the limit of " + quoted
	}

	if n := a.RetryAfter(); n == 1 {
		r.Message += "; retry after 1 second"
	} else if n > 0 {
		r.Message += fmt.Sprintf("; retry after %d seconds", n)
	}

	// The names are in the order of the decisions. One that has no decision leaves no violation.
	for _, d := range res.Decisions() {
		if len(names) > 0 && names[0] == d.Rule {
			names = names[1:]
			r.Violations = append(r.Violations, Violation{d.Rule, describe(a, d.Decision)})
		}
	}
	return r
}

// codeOf returns the code for a call that does not pass.
func codeOf(a *limiter.Admission) Code {
	switch a.Status() {
	case 503:
		return Unavailable
	case 403:
		return PermissionDenied
	}
	return ResourceExhausted
}

// retryAfter returns the exact time of a refusal, and that of the Retry-After header for
// others.
func retryAfter(a *limiter.Admission) time.Duration {
	seconds := time.Duration(a.RetryAfter()) * time.Second
	if d := a.Result().RetryAfter(); a.Outcome() == limiter.Refused && seconds > 0 && d > 0 {
		return d
	}
	return seconds
}

func describe(a *limiter.Admission, d core.Decision) string {
	switch {
	case a.Outcome() == limiter.QueueFull:
		return "too many requests wait already"
	case d.Banned:
		return "banned for abnormal usage"
	case d.RetryAfter == core.Never && a.Status() == 503:
		return "this server alone cannot admit as much"
	case d.RetryAfter == core.Never:
		return "the request asks for more than the quota can ever hold"
	}
	return "the quota is used up"
}

// maxPushback is the longest time for which a client of gRPC is made to wait without its
// program knowing.
const maxPushback = time.Minute

// Pushback returns the value of grpc-retry-pushback-ms, which the retry policies of gRPC
// heed: the milliseconds to wait, rounded up, or "-1" for no retry, if none can succeed
// or the wait is above a minute.
func (r Refusal) Pushback() string {
	if r.RetryAfter <= 0 || r.RetryAfter > maxPushback {
		return "-1"
	}
	return strconv.FormatInt(int64((r.RetryAfter+time.Millisecond-1)/time.Millisecond), 10)
}
