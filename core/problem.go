package core

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
	b = a.appendDetail(b)
	b = appendNames(append(b, `","violated-policies":`...), a.grant.Violated())
	return append(b, '}')
}
