package core

import "strconv"

// ProblemType is the Content-Type of [Admission.Problem].
const ProblemType = "application/problem+json"

// Problem is the body of a refusal or a failure (RFC 9457). It names rules and
// numbers, and nothing that the client sent. It is nil for a request that
// passes.
func (a *Admission) Problem() []byte {
	switch a.Outcome() {
	case Refused:
		return a.quotaExceeded()
	case Failed:
		return []byte(`{"type":"about:blank","title":"Service Unavailable","status":503}`)
	}
	return nil
}

// quotaExceeded is the problem type that
// draft-ietf-httpapi-ratelimit-headers registers. Rule names need no escapes.
func (a *Admission) quotaExceeded() []byte {
	b := make([]byte, 0, 320)
	b = append(b, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",`...)
	b = append(b, `"title":"Request cannot be satisfied as assigned quota has been exceeded",`...)
	b = append(b, `"status":429,"detail":"`...)
	switch n := a.RetryAfter(); n {
	case 0:
		b = append(b, "The request asks for more than the quota can ever hold."...)
	case 1:
		b = append(b, "Retry after 1 second."...)
	default:
		b = append(b, "Retry after "...)
		b = strconv.AppendInt(b, n, 10)
		b = append(b, " seconds."...)
	}
	b = append(b, `","violated-policies":[`...)
	for i, name := range a.grant.Violated() {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), name...), '"')
	}
	return append(b, `]}`...)
}
