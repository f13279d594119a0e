package limiter

import "github.com/headgate/headgate/core"

// markPrefix begins the names under which the headers of an answer keep which
// limiters have decided about its request. There are no values under them, so
// nothing of it is ever sent. In lower case no header can have such a name.
const markPrefix = "headgate-"

// newMark returns a name that no other limiter has.
func newMark(ids *leaseSource) string { return markPrefix + ids.next()[:16] }

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
	if _, marked := h[l.mark]; !marked {
		return false
	}
	l.WarnTwice()
	return true
}

// WarnTwice says, once, that a request met the limiter a second time.
func (l *Limiter) WarnTwice() {
	l.Warn(core.Finding{Code: CodeTwice, Text: "a request met the same limiter twice and was counted once: it is mounted in two " +
		"places that one request passes"})
}
