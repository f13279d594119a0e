package limiter

import "io"

// ProblemType is the Content-Type of [Admission.Problem].
const ProblemType = "application/problem+json"

// Problem is the body of a refusal or a failure (RFC 9457). It names rules and
// numbers, and nothing that the client sent. It is nil for a request that
// passes.
func (a *Admission) Problem() []byte {
	switch a.Outcome() {
	case Refused:
		return a.appendQuotaExceeded(make([]byte, 0, 320))
	case Failed:
		return []byte(unavailable)
	}
	return nil
}

// WriteProblem writes [Admission.Problem] to w, which must not keep what it is
// given, as an [io.Writer] never does. There is nothing to allocate.
func (a *Admission) WriteProblem(w io.Writer) error {
	switch a.Outcome() {
	case Refused:
		a.body = a.appendQuotaExceeded(a.body[:0])
	case Failed:
		a.body = append(a.body[:0], unavailable...)
	default:
		return nil
	}
	_, err := w.Write(a.body)
	return err
}

const unavailable = `{"type":"about:blank","title":"Service Unavailable","status":503}`

// appendQuotaExceeded writes the problem type that
// draft-ietf-httpapi-ratelimit-headers registers. Rule names need no escapes.
func (a *Admission) appendQuotaExceeded(b []byte) []byte {
	b = append(b, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",`+
		`"title":"Request cannot be satisfied as assigned quota has been exceeded",`+
		`"status":429,"detail":"`...)
	b = a.appendDetail(b)
	b = a.appendViolated(append(b, `","violated-policies":`...))
	return append(b, '}')
}

// appendViolated writes a JSON list of the rules that refused the request.
func (a *Admission) appendViolated(b []byte) []byte {
	res, comma := &a.result, ""
	b = append(b, '[')
	for i := range res.calls {
		if res.violates(i) {
			b = append(append(b, comma...), '"')
			b = append(append(b, res.calls[i].rule.Name...), '"')
			comma = ","
		}
	}
	return append(b, ']')
}
