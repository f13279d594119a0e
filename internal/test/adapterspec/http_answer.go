package adapterspec

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Text returns an answer of HTTP in text/plain.
func Text(status int, body string) Answer { return Typed(status, Plain, body) }

// Typed returns an answer of HTTP of a content type.
func Typed(status int, contentType, body string) Answer {
	return Answer{Status: status, Body: body, Header: map[string]string{
		"Content-Type": contentType, "Content-Length": strconv.Itoa(len(body))}}
}

// Bare returns an answer of HTTP without a body.
func Bare(status int) Answer {
	return Answer{Status: status, Header: map[string]string{"Content-Length": "0"}}
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

// problem returns an answer in the type of problem details.
func problem(status int, format string, args ...any) Answer {
	return Typed(status, "application/problem+json", fmt.Sprintf(format, args...)).
		with(map[string]string{"Cache-Control": "no-store"})
}

func (*overHTTP) passed(text string) Answer { return Text(200, text) }

func (o *overHTTP) refusal(rule string, after time.Duration) Answer {
	return problem(429, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",`+
		`"title":"Request cannot be satisfied as assigned quota has been exceeded",`+
		`"status":429,"detail":"Retry after %s.","violated-policies":[%q]}`, secondsText(after), rule).
		with(o.comeAgain(after))
}

func (o *overHTTP) abnormal(rule string, after time.Duration) Answer {
	return problem(429, `{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected",`+
		`"title":"Request not satisfied due to detection of abnormal request pattern",`+
		`"status":429,"detail":"Retry after %s.","violated-policies":[%q]}`, secondsText(after), rule).
		with(o.comeAgain(after))
}

func (*overHTTP) denial(rule string, status int) Answer {
	status = cmp.Or(status, http.StatusForbidden)
	return problem(status, `{"type":"about:blank","title":%q,"status":%d,"violated-policies":[%q]}`,
		http.StatusText(status), status, rule)
}

func (o *overHTTP) failure(after time.Duration) Answer {
	return problem(503, `{"type":"about:blank","title":"Service Unavailable","status":503}`).with(o.comeAgain(after))
}

func (o *overHTTP) queueFull(rule string, status int) Answer {
	status = cmp.Or(status, http.StatusServiceUnavailable)
	return problem(status, `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",`+
		`"title":"Request cannot be satisfied due to temporary server capacity constraints","status":%d,`+
		`"detail":"Too many requests wait already. Retry after 1 second.","violated-policies":[%q]}`, status, rule).
		with(o.comeAgain(second))
}

func (*overHTTP) own(o ownAnswer, text string) Answer { return Text(ownStatuses[o], text) }
func (o *overHTTP) onError() Answer                   { return o.Errs }
func (o *overHTTP) onPanic() Answer                   { return o.Panics }

func (*overHTTP) comeAgain(after time.Duration) map[string]string {
	return map[string]string{"Retry-After": strconv.Itoa(seconds(after)), "Cache-Control": "no-store"}
}

func (o *overHTTP) endings() (list []ending) {
	for _, name := range slices.Sorted(maps.Keys(o.kinds())) {
		if name == "a hijack" {
			continue // which is answered before it is settled
		}
		list = append(list, ending{name: name, handler: o.handler(name)})
	}
	return list
}

func (o *overHTTP) failures() []ending {
	unauthorized := func(x turn) error { return x.(httpTurn).Fail(401) }
	return []ending{
		{"a reply with failure", o.handler("a reply with failure"), Text(418, "a pot")},
		{"a failure", o.handler("a failure"), o.Fails(404)},
		{"an error", o.handler("an error"), o.Errs},
		{"a panic", o.handler("a panic"), o.Panics},
		{"the failure of a login", unauthorized, o.Fails(401)},
	}
}

// handler returns the handler of a kind.
func (o *overHTTP) handler(kind string) handler {
	h := o.kinds()[kind]
	return func(x turn) error { return h(x.(httpTurn).Exchange) }
}

func (*overHTTP) refundIf(o outcome) func(status int) bool {
	if o == panicked {
		return func(status int) bool { return status == http.StatusInternalServerError }
	}
	return func(status int) bool { return status < 400 }
}

func (*overHTTP) forged() []string {
	return []string{
		"X-Forwarded-For: 198.51.100.1",
		"X-Forwarded-For: 198.51.100.2\nX-Forwarded-For: 198.51.100.3",
		"X-Forwarded-For: 127.0.0.1, 198.51.100.4",
		"X-Real-Ip: 198.51.100.5", "X-Real-Ip: 198.51.100.5\nX-Real-Ip: 198.51.100.6",
		"True-Client-Ip: 198.51.100.7", "Cf-Connecting-Ip: 198.51.100.8",
		"X-Client-Ip: 198.51.100.9", "X-Cluster-Client-Ip: 198.51.100.10",
		`Forwarded: for="[2001:db8::1]:80"`, "Via: 1.1 198.51.100.11",
		"X-Forwarded-Host: b.example", "X-Original-Url: /free", "X-Rewrite-Url: /free",
		"X-Http-Method-Override: OPTIONS", "Access-Control-Request-Method: GET\nOrigin: https://a.example",
		"X-Ratelimit-Remaining: 100", "Ratelimit: \"a\";r=100", "Retry-After: 0",
	}
}
