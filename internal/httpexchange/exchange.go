package httpexchange

import (
	"net/http"

	"github.com/headgate/headgate/limiter"
)

// Meeting is a request that has met a limiter.
type Meeting struct {
	header http.Header   // of the answer
	mark   *limiter.Mark // of other limiters, in the context, or nil
}

// Meet reports whether l has counted the request before: whether it is among the limiters of
// the mark in the header map of the answer, or of that in the context.
func Meet(l *limiter.Limiter, w http.ResponseWriter, r *http.Request) (m Meeting, counted bool) {
	m.header = w.Header()
	if inContexts.Load() {
		m.mark = markIn(r.Context())
	}
	return m, len(m.header) > 0 && l.Counted(m.header) || m.mark != nil && l.CountedBy(m.mark)
}

// Enter sets the headers of the limiter, merged with those of the limiters that the request has
// met before. Of a request that passes it leaves the mark, and returns the request for the
// handlers, with the result of an admission that needs the context.
func (m Meeting) Enter(w http.ResponseWriter, r *http.Request, a *limiter.Admission) *http.Request {
	if m.mark != nil {
		a.Merge(m.mark, m.header.Get)
	}

	a.SetHeaders(m.header)

	// Of what the handlers do not answer, no other limiter has to know.
	if a.Outcome() != limiter.Pass {
		return r
	}

	// The mark comes after the headers: it says which rule they are about.
	r = leave(w, m.header, r, a)
	if a.NeedsContext() {
		r = r.WithContext(limiter.NewContext(r.Context(), a))
	}
	return r
}

// Write writes the answer of an admission, and reports whether it has one. Its error is that of
// the body: the client may have left.
func Write(w http.ResponseWriter, a *limiter.Admission) (ok bool, err error) {
	answer, ok := a.Answer()
	if ok {
		err = Send(w, a, answer)
	}
	return ok, err
}

// Send writes an answer of an admission.
func Send(w http.ResponseWriter, a *limiter.Admission, answer limiter.Answer) (err error) {
	a.SetAnswerHeaders(w.Header(), answer)
	w.WriteHeader(answer.Status)
	if len(answer.Body) > 0 {
		_, err = w.Write(answer.Body)
	}
	return err
}
