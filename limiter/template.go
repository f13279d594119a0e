package limiter

import "strconv"

// Answer is what a client gets instead of the handler's answer.
type Answer struct {
	Status  int
	Headers []Header // besides those of the limiter; names are canonical
	Body    []byte
}

// Template makes the answer to a request that is refused, or that failed. It is
// safe for concurrent use and must not keep the admission. The adapters' Answer
// functions write what it returns. A program's own may return an answer that it
// keeps ready, but should put nothing into it that the client sent.
type Template func(a *Admission) Answer

// PlainText answers in one line of text/plain.
func PlainText(a *Admission) Answer {
	b := make([]byte, 0, 64)
	if a.Outcome() == Failed {
		b = append(b, "Service unavailable."...)
	} else {
		b = a.appendDetail(append(b, "Too many requests. "...))
	}
	return typed(a, "text/plain; charset=utf-8", append(b, '\n'))
}

// JSON answers with an object of "error", which is "too_many_requests" or
// "service_unavailable"; "retry_after" in seconds, unless it is of no use to try
// again; and for a refusal "rules", the names of those that refused.
func JSON(a *Admission) Answer {
	b := make([]byte, 0, 128)
	if a.Outcome() == Failed {
		b = append(b, `{"error":"service_unavailable"`...)
	} else {
		b = append(b, `{"error":"too_many_requests"`...)
	}
	if n := a.RetryAfter(); n > 0 {
		b = strconv.AppendInt(append(b, `,"retry_after":`...), n, 10)
	}
	if a.Outcome() == Refused {
		b = a.appendViolated(append(b, `,"rules":`...))
	}
	return typed(a, "application/json", append(b, '}'))
}

// ProblemJSON answers with [Admission.Problem]. It is what adapters use unless
// they are told otherwise.
func ProblemJSON(a *Admission) Answer { return typed(a, ProblemType, a.Problem()) }

// Fixed answers always the same. Neither headers nor body may be changed after.
func Fixed(answer Answer) Template {
	return func(*Admission) Answer { return answer }
}

func typed(a *Admission, contentType string, body []byte) Answer {
	return Answer{a.Outcome().Status(), []Header{{"Content-Type", contentType}}, body}
}

// appendDetail writes the sentence that tells when to try again.
func (a *Admission) appendDetail(b []byte) []byte {
	seconds := a.RetryAfter()
	if seconds == 0 {
		return append(b, "The request asks for more than the quota can ever hold."...)
	}
	b = strconv.AppendInt(append(b, "Retry after "...), seconds, 10)
	if seconds == 1 {
		return append(b, " second."...)
	}
	return append(b, " seconds."...)
}
