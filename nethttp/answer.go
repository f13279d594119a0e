package nethttp

import (
	"net/http"

	"github.com/headgate/headgate/limiter"
)

// reject answers a request that does not pass, by the program's own function
// if there is one.
func reject(w http.ResponseWriter, r *http.Request, a *limiter.Admission,
	own func(http.ResponseWriter, *http.Request, *limiter.Admission)) {
	defer a.Done(a.Outcome().Status())
	if own != nil && wrote(w, r, a, own) {
		return
	}
	answer, _ := a.Answer()
	write(w, answer)
}

// wrote calls own and reports whether it has sent a status or taken the
// connection over.
func wrote(w http.ResponseWriter, r *http.Request, a *limiter.Admission,
	own func(http.ResponseWriter, *http.Request, *limiter.Admission)) bool {
	rec := &recorder{ResponseWriter: w, admission: a}
	own(rec.wrapped(), r, a)
	return rec.sent != 0
}

// degradedHandler answers requests over the limit of a Degrade rule where the
// program has no handler for them.
type degradedHandler struct {
	admission *limiter.Admission
	next      http.Handler
}

// ServeHTTP writes the answer of the Config, if it has one.
func (d degradedHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if answer, ok := d.admission.Answer(); ok {
		write(w, answer)
		return
	}
	d.next.ServeHTTP(w, r)
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
