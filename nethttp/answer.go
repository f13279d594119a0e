package nethttp

import (
	"net/http"

	"github.com/headgate/headgate/limiter"
)

// reject answers a refused or failed request. It calls own, the function of
// Config.Refused or Config.Failed, and writes the answer of the Config if own is nil or
// writes nothing.
func reject(w http.ResponseWriter, r *http.Request, a *limiter.Admission,
	own func(http.ResponseWriter, *http.Request, *limiter.Admission)) {
	defer a.Done(a.Status())
	if own != nil && wrote(w, r, a, own) {
		return
	}
	answer, _ := a.Answer()
	write(w, answer)
}

// wrote calls own and reports whether own has sent a status or taken over the
// connection.
func wrote(w http.ResponseWriter, r *http.Request, a *limiter.Admission,
	own func(http.ResponseWriter, *http.Request, *limiter.Admission)) bool {
	rec := &recorder{ResponseWriter: w, admission: a}
	own(rec.wrapped(), r, a)
	return rec.sent != 0
}

// degradedHandler answers a request over the limit of a Degrade rule when there is
// no handler of [Config].
type degradedHandler struct {
	admission *limiter.Admission
	next      http.Handler
}

// ServeHTTP writes the answer of Config.Degraded. Without one it calls next.
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
