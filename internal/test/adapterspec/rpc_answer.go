package adapterspec

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/rpc"
)

// AddPair adds a header or trailer of a call with its values, unless it is none of a limiter's.
func (a *Answer) AddPair(name string, values []string) {
	name = http.CanonicalHeaderKey(strings.ToLower(name))
	switch name {
	case "Ratelimit", "Ratelimit-Policy", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset",
		"Retry-After", "X-Own", "headgate mark":
	default:
		return
	}

	// A name that comes as a header and as a trailer has both values, which no answer should.
	if a.Header == nil {
		a.Header = map[string]string{}
	}
	if old := a.Header[name]; old != "" {
		values = append([]string{old}, values...)
	}
	a.Header[name] = strings.Join(values, " | ")
}

// callError returns the error of a call.
func callError(code rpc.Code, format string, args ...any) Answer {
	return Answer{CallStatus: CallStatus{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// again returns the error of a call that may be repeated.
func (o *overRPC) again(a Answer, after time.Duration, rules ...string) Answer {
	a.Message += "; retry after " + secondsText(after)
	a.RetryAfter, a.Rules = after, rules
	if o.wholeSeconds {
		a.RetryAfter = time.Duration(seconds(after)) * second
	}
	return a.with(o.comeAgain(after))
}

func (*overRPC) passed(text string) Answer { return Answer{Body: text} }

func (o *overRPC) refusal(rule string, after time.Duration) Answer {
	return o.again(callError(rpc.ResourceExhausted, "over the limit of %q", rule), after, rule)
}

func (o *overRPC) abnormal(rule string, after time.Duration) Answer {
	return o.again(callError(rpc.ResourceExhausted, "banned by %q for abnormal usage", rule), after, rule)
}

func (*overRPC) denial(rule string, status int) Answer {
	codes := map[int]rpc.Code{0: rpc.PermissionDenied, 403: rpc.PermissionDenied, 429: rpc.ResourceExhausted}
	return callError(codes[status], "denied by %q", rule)
}

func (o *overRPC) failure(after time.Duration) Answer {
	return o.again(callError(rpc.Unavailable, "the limiter cannot decide"), after)
}

func (o *overRPC) queueFull(rule string, status int) Answer {
	code := map[int]rpc.Code{429: rpc.ResourceExhausted}[status]
	full := callError(cmp.Or(code, rpc.Unavailable), "too many requests wait already for %q", rule)
	return o.again(full, second, rule)
}

var ownCodes = map[ownAnswer]rpc.Code{ownRefused: 9, ownFailed: 10}

func (*overRPC) own(o ownAnswer, text string) Answer { return callError(ownCodes[o], "%s", text) }
func (*overRPC) onError() Answer                     { return callError(rpc.Unknown, "boom") }
func (*overRPC) onPanic() Answer                     { return callError(rpc.Internal, "panic") }

func (*overRPC) comeAgain(after time.Duration) map[string]string {
	return map[string]string{"Retry-After": strconv.Itoa(seconds(after))}
}

func (o *overRPC) endings() []ending {
	return []ending{byReturn(o), byError(o), byPanic(o), o.byCode(1)}
}

func (o *overRPC) failures() []ending {
	return []ending{byError(o), byPanic(o), o.byCode(1), o.byCode(16), o.byCode(2)}
}

// byCode ends with an error of the code.
func (o *overRPC) byCode(c rpc.Code) ending {
	fails := func(turn) error { return o.NewError(c, "no") }
	return ending{fmt.Sprint("code ", c), fails, callError(c, "no")}
}

func (o *overRPC) refundIf(kind outcome) func(status int) bool {
	want := rpc.OK
	if kind == panicked {
		want = rpc.Internal
	}
	return o.RefundIf(func(c rpc.Code) bool { return c == want })
}

func (*overRPC) forged() []string {
	return []string{
		"x-forwarded-for: 198.51.100.1", "x-forwarded-for: 198.51.100.2\nx-forwarded-for: 198.51.100.3",
		"x-forwarded-for: 127.0.0.1, 198.51.100.4", "x-real-ip: 198.51.100.5", "true-client-ip: 198.51.100.7",
		`forwarded: for="[2001:db8::1]:80"`, "via: 1.1 198.51.100.11", "x-original-url: /grpc.health.v1.Health/Check",
		"x-ratelimit-remaining: 100", "ratelimit: \"a\";r=100", "retry-after: 0", "grpc-previous-rpc-attempts: 1",
	}
}
