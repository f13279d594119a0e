package adapterspec

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/rpc"
)

// An Answer is an answer as a client gets it: that of HTTP, without the date, or the end of a
// call.
type Answer struct {
	Status int // of HTTP, 0 for a call
	CallStatus

	// Header holds the lines by canonical names. Of a call they are those of limiters, among
	// its headers and trailers.
	Header map[string]string

	Body string // the last text of a call
}

// A CallStatus says how a call ended.
type CallStatus struct {
	Code       rpc.Code
	Message    string
	RetryAfter time.Duration // of RetryInfo; 0 if there is none
	Rules      []string      // of QuotaFailure
}

// with returns the answer with more headers, which replace those of the same name.
func (a Answer) with(more ...map[string]string) Answer {
	header := maps.Clone(a.Header)
	if header == nil {
		header = map[string]string{}
	}
	for _, m := range more {
		maps.Copy(header, m)
	}
	a.Header = header
	return a
}

// withoutLimits returns the answer without the headers that state limits.
func (a Answer) withoutLimits() Answer {
	a = a.with()
	maps.DeleteFunc(a.Header, func(name, _ string) bool { return strings.Contains(name, "Ratelimit") })
	return a
}

// String returns the answer in lines, with the headers sorted. An answer of HTTP is as on the wire.
func (a Answer) String() string {
	var b strings.Builder
	if a.Status != 0 {
		fmt.Fprintf(&b, "%d\n", a.Status)
	} else {
		fmt.Fprintf(&b, "code %d %q, retry after %s, rules %q\n", a.Code, a.Message, a.RetryAfter, a.Rules)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		fmt.Fprintf(&b, "%s: %s\n", name, a.Header[name])
	}
	return b.String() + "\n" + a.Body
}

// limits returns the headers that state limits: the most exhausted rule's units, those left and
// the time in seconds after the start when it is fresh, and the lists of all rules.
func limits(quota, left, reset int, policy, list string) map[string]string {
	return map[string]string{
		"X-Ratelimit-Limit":     strconv.Itoa(quota),
		"X-Ratelimit-Remaining": strconv.Itoa(left),
		"X-Ratelimit-Reset":     strconv.Itoa(epoch + reset),
		"Ratelimit-Policy":      policy,
		"Ratelimit":             list,
	}
}

// rate returns the headers for rule "a", which grants quota units in 10 seconds. At
// second at, left units are left, and the rule is fresh reset seconds later.
func rate(at, quota, left, reset int) map[string]string {
	return limits(quota, left, at+reset, fmt.Sprintf(`"a";q=%d;w=10`, quota), fmt.Sprintf(`"a";r=%d;t=%d`, left, reset))
}

// leaseHeaders returns the headers for rule "lease", which grants one lease for at
// most a minute.
func leaseHeaders(left int) map[string]string {
	return limits(1, left, 60, `"lease";q=1;qu="concurrent-requests"`, fmt.Sprintf(`"lease";r=%d`, left))
}

// busy and free are the answers of a limiter that lets one request in at a time.
func (b *bench) busy() Answer { return b.refusal("lease", time.Minute).with(leaseHeaders(0)) }

func (b *bench) free() Answer { return b.passed("ok").with(leaseHeaders(0)) }

// seconds returns d in whole seconds, rounded up.
func seconds(d time.Duration) int { return int((d + second - 1) / second) }

// secondsText returns d as clients read it.
func secondsText(d time.Duration) string {
	if n := seconds(d); n != 1 {
		return fmt.Sprintf("%d seconds", n)
	}
	return "1 second"
}
