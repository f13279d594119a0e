package nethttp

import (
	"net/http"

	"github.com/headgate/headgate/core"
)

// Answer writes what the template returns, for [WithRefused] and [WithFailed]:
//
//	nethttp.WithRefused(nethttp.Answer(core.JSON))
func Answer(t core.Template) func(http.ResponseWriter, *http.Request, *core.Admission) {
	return func(w http.ResponseWriter, _ *http.Request, a *core.Admission) { write(w, t(a)) }
}

// Fallback answers every request with one answer that is kept ready, for
// [WithDegraded].
func Fallback(answer core.Answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { write(w, answer) })
}

// problem writes what [Answer] of core.ProblemJSON does.
func problem(w http.ResponseWriter, _ *http.Request, a *core.Admission) {
	w.Header()["Content-Type"] = []string{core.ProblemType}
	w.WriteHeader(a.Outcome().Status())
	_ = a.WriteProblem(w) // the client may have left
}

func write(w http.ResponseWriter, answer core.Answer) {
	for _, h := range answer.Headers {
		w.Header()[h.Name] = []string{h.Value}
	}
	w.WriteHeader(answer.Status)
	if len(answer.Body) > 0 {
		_, _ = w.Write(answer.Body) // the client may have left
	}
}
