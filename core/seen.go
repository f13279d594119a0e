package core

// seenHeader keeps, beside the headers of an answer, which limiters have
// decided about its request. It has no values, so nothing of it is ever sent:
// the marks stand behind the end of an empty list.
const seenHeader = "Headgate"

// Counted tells whether l has decided about the request before, so that it
// passes without being counted once more. h is the header of its answer, which
// [Admission.SetHeaders] has marked; what a client sends has no part in it. An
// adapter that has no such header uses whatever belongs to the request alone,
// with l as the key, and calls [Limiter.WarnTwice].
//
// A middleware between that gives the answer a header map of its own, as
// [net/http.TimeoutHandler] does, hides the mark. A nil Limiter has counted
// nothing.
func (l *Limiter) Counted(h map[string][]string) bool {
	if l == nil {
		return false
	}
	for _, id := range marks(h) {
		if id == l.id {
			l.WarnTwice()
			return true
		}
	}
	return false
}

// WarnTwice says, once, that a request met the limiter a second time.
func (l *Limiter) WarnTwice() {
	l.Warn(Finding{Code: CodeTwice, Text: "a request met the same limiter twice and was counted once: it is mounted in two " +
		"places that one request passes"})
}

// marks are the ids of the limiters that have counted the request.
func marks(h map[string][]string) []string {
	list := h[seenHeader]
	return list[:cap(list)]
}
