package httpspec

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Answer is an answer as a client gets it, without the date.
type Answer struct {
	Status int
	Header map[string]string
	Body   string
}

// Text returns an answer in text/plain.
func Text(status int, body string) Answer { return Typed(status, Plain, body) }

// Typed returns an answer of a content type.
func Typed(status int, contentType, body string) Answer {
	return Answer{status, map[string]string{
		"Content-Type": contentType, "Content-Length": strconv.Itoa(len(body))}, body}
}

// Bare returns an answer without a body.
func Bare(status int) Answer {
	return Answer{Status: status, Header: map[string]string{"Content-Length": "0"}}
}

// with returns the answer with more headers, which replace those of the same name.
func (a Answer) with(more ...map[string]string) Answer {
	a.Header = maps.Clone(a.Header)
	for _, m := range more {
		maps.Copy(a.Header, m)
	}
	return a
}

// forHEAD returns the answer to a HEAD request. An answer with an empty body has no
// Content-Length there.
func (a Answer) forHEAD() Answer {
	if a.Body == "" {
		return a.streamed()
	}
	a.Body = ""
	return a
}

// streamed returns the answer as sent before the length of its body is known.
func (a Answer) streamed() Answer {
	a = a.with()
	delete(a.Header, "Content-Length")
	return a
}

// String returns the answer as on the wire, with the headers sorted.
func (a Answer) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d\n", a.Status)
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		fmt.Fprintf(&b, "%s: %s\n", name, a.Header[name])
	}
	return b.String() + "\n" + a.Body
}

// rate returns the headers for rule "a", which grants quota units in 10 seconds. At
// second at, left units are left, and the rule is fresh reset seconds later.
func rate(at, quota, left, reset int) map[string]string {
	return map[string]string{
		"X-Ratelimit-Limit":     strconv.Itoa(quota),
		"X-Ratelimit-Remaining": strconv.Itoa(left),
		"X-Ratelimit-Reset":     strconv.Itoa(epoch + at + reset),
		"Ratelimit-Policy":      fmt.Sprintf(`"a";q=%d;w=10`, quota),
		"Ratelimit":             fmt.Sprintf(`"a";r=%d;t=%d`, left, reset),
	}
}

// leaseHeaders returns the headers for rule "lease", which grants one lease for at
// most a minute.
func leaseHeaders(left int) map[string]string {
	return map[string]string{
		"X-Ratelimit-Limit":     "1",
		"X-Ratelimit-Remaining": strconv.Itoa(left),
		"X-Ratelimit-Reset":     strconv.Itoa(epoch + 60),
		"Ratelimit-Policy":      `"lease";q=1;qu="concurrent-requests"`,
		"Ratelimit":             fmt.Sprintf(`"lease";r=%d`, left),
	}
}

// refusal returns the 429 of a rule to a client that may repeat the request after
// seconds.
func refusal(rule string, seconds int) Answer {
	unit := "seconds"
	if seconds == 1 {
		unit = "second"
	}
	return Typed(429, "application/problem+json", fmt.Sprintf(
		`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",`+
			`"title":"Request cannot be satisfied as assigned quota has been exceeded",`+
			`"status":429,"detail":"Retry after %d %s.","violated-policies":[%q]}`, seconds, unit, rule)).
		with(map[string]string{"Retry-After": strconv.Itoa(seconds), "Cache-Control": "no-store"})
}

// abnormal returns the 429 of a rule to a client that is banned for so many seconds.
func abnormal(rule string, seconds int) Answer {
	unit := "seconds"
	if seconds == 1 {
		unit = "second"
	}
	return Typed(429, "application/problem+json", fmt.Sprintf(
		`{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected",`+
			`"title":"Request not satisfied due to detection of abnormal request pattern",`+
			`"status":429,"detail":"Retry after %d %s.","violated-policies":[%q]}`, seconds, unit, rule)).
		with(map[string]string{"Retry-After": strconv.Itoa(seconds), "Cache-Control": "no-store"})
}

// denial returns the answer of a rule that denies the caller.
func denial(rule string) Answer {
	return Typed(403, "application/problem+json", fmt.Sprintf(
		`{"type":"about:blank","title":"Forbidden","status":403,"violated-policies":[%q]}`, rule)).
		with(map[string]string{"Cache-Control": "no-store"})
}

// failure returns the 503 of a limiter that fails closed when the store could not
// decide.
func failure() Answer {
	return Typed(503, "application/problem+json",
		`{"type":"about:blank","title":"Service Unavailable","status":503}`).
		with(map[string]string{"Retry-After": "1", "Cache-Control": "no-store"})
}
