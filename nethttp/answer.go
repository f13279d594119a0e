package nethttp

import (
	"net/http"

	"github.com/headgate/headgate/limiter"
)

// Answer writes what the template returns, for [WithRefused] and [WithFailed]:
//
//	nethttp.WithRefused(nethttp.Answer(limiter.JSON))
func Answer(t limiter.Template) func(http.ResponseWriter, *http.Request, *limiter.Admission) {
	return func(w http.ResponseWriter, _ *http.Request, a *limiter.Admission) { write(w, t(a)) }
}

// Fallback answers every request with one answer that is kept ready, for
// [WithDegraded].
func Fallback(answer limiter.Answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { write(w, answer) })
}

// problem writes what [Answer] of limiter.ProblemJSON does.
func problem(w http.ResponseWriter, _ *http.Request, a *limiter.Admission) {
	w.Header()["Content-Type"] = []string{limiter.ProblemType}
	w.WriteHeader(a.Outcome().Status())
	_ = a.WriteProblem(w) // the client may have left
}

func write(w http.ResponseWriter, answer limiter.Answer) {
	for _, h := range answer.Headers {
		w.Header()[h.Name] = []string{h.Value}
	}
	w.WriteHeader(answer.Status)
	if len(answer.Body) > 0 {
		_, _ = w.Write(answer.Body) // the client may have left
	}
}
