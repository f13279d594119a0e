package limiter

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Answer is what a client gets instead of the handler's answer.
type Answer struct {
	// Status is a final status, 200 to 999. Any other, such as 0, means the status
	// of [Admission.Status], or 200 for a degraded request.
	Status  int
	Headers []Header // besides those of the limiter; names are canonical
	Body    []byte
}

// Template makes the answer to a request that is refused, that failed or that is
// degraded; see [Config]. It must be safe for concurrent use and must not keep the
// admission. A template may return the same answer each time. Its answers should hold
// nothing that the client sent. A panic of a template is reported as an error, and the answer
// is then as without one.
type Template func(a *Admission) Answer

// PlainText answers in one line of text/plain.
func PlainText(a *Admission) Answer {
	b := make([]byte, 0, 64)
	switch outcome := a.Outcome(); {
	case outcome == Failed:
		b = append(b, "Service unavailable."...)
	case outcome == QueueFull:
		b = a.appendDetail(b)
	case a.result.denied:
		b = append(append(b, denialTitles[a.Status()]...), '.')
	case a.result.Banned():
		b = a.appendDetail(append(b, "Abnormal usage detected. "...))
	default:
		b = a.appendDetail(append(b, "Too many requests. "...))
	}
	return typed(a, "text/plain; charset=utf-8", append(b, '\n'))
}

// JSON answers with an object of "error", which is "too_many_requests",
// "abnormal_usage_detected" for a banned key, "forbidden", "service_unavailable" or
// "queue_full"; "retry_after" in seconds, unless a retry can
// never succeed; and, except for a failure, "rules", the names of the rules that refused.
func JSON(a *Admission) Answer {
	b := make([]byte, 0, 128)
	switch outcome := a.Outcome(); {
	case outcome == Failed:
		b = append(b, `{"error":"service_unavailable"`...)
	case outcome == QueueFull:
		b = append(b, `{"error":"queue_full"`...)
	case a.Status() == forbidden:
		b = append(b, `{"error":"forbidden"`...)
	case a.result.Banned():
		b = append(b, `{"error":"abnormal_usage_detected"`...)
	default:
		b = append(b, `{"error":"too_many_requests"`...)
	}
	if n := a.RetryAfter(); n > 0 {
		b = strconv.AppendInt(append(b, `,"retry_after":`...), n, 10)
	}
	if o := a.Outcome(); o == Refused || o == QueueFull {
		b = a.appendViolated(append(b, `,"rules":`...))
	}
	return typed(a, "application/json", append(b, '}'))
}

// ProblemJSON answers with [Admission.Problem]. It is the default of Refused and Failed
// in a [Config].
func ProblemJSON(a *Admission) Answer { return typed(a, ProblemType, a.Problem()) }

// Fixed always returns the same answer. Its headers and body must not be changed
// afterwards.
func Fixed(answer Answer) Template {
	return func(*Admission) Answer { return answer }
}

func typed(a *Admission, contentType string, body []byte) Answer {
	return Answer{a.Status(), []Header{{"Content-Type", contentType}}, body}
}

// Redirect answers 303 See Other, with the target in Location: a path such as
// "/busy", or an http or https URL, in ASCII without spaces, as in an HTTP message.
// The target must not be limited by the same limiter, because clients would then be
// redirected again and again.
func Redirect(target string) (Template, error) {
	if err := checkTarget(target); err != nil {
		return nil, fmt.Errorf("Redirect: %w", err)
	}
	return Fixed(Answer{Status: 303, Headers: []Header{{"Location", target}}}), nil
}

// MustRedirect is [Redirect] for program text. It panics where that returns an
// error.
func MustRedirect(target string) Template { return must(Redirect(target)) }

func checkTarget(target string) error {
	for _, c := range []byte(target) {
		if c <= ' ' || c >= 0x7f || c == '\\' {
			return fmt.Errorf("the target holds the byte %#x", c)
		}
	}
	u, err := url.Parse(target)
	switch {
	case err != nil:
		return errors.New("the target is not a URL")
	case u.Scheme == "" && strings.HasPrefix(target, "/") && !strings.HasPrefix(target, "//"):
		return nil
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("the target is neither a path that begins with one slash nor an http or https URL")
	case u.User != nil:
		return errors.New("the target holds a user")
	}
	return nil
}

func must(t Template, err error) Template {
	if err != nil {
		panic(err)
	}
	return t
}
