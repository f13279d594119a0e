package nethttp

import (
	"net/http"

	"github.com/headgate/headgate/core"
)

// New returns middleware that has l decide about every request. It is safe for
// concurrent use and may wrap any number of handlers. A nil limiter answers 503.
func New(l *core.Limiter, opts ...Option) func(http.Handler) http.Handler {
	o := options{refused: answer, failed: answer}
	for _, set := range opts {
		set(&o)
	}
	return func(next http.Handler) http.Handler {
		return &gate{options: o, limiter: l, next: next}
	}
}

// gate stands before a handler.
type gate struct {
	options
	limiter *core.Limiter
	next    http.Handler
}

// ServeHTTP answers the request itself or has the handler do it.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.skip != nil && g.skip(r) {
		g.next.ServeHTTP(w, r)
		return
	}
	a := g.limiter.Admit(request{r})
	a.SetHeaders(w.Header())
	switch a.Outcome() {
	case core.Refused:
		g.turnAway(w, r, a, g.refused)
	case core.Failed:
		g.turnAway(w, r, a, g.failed)
	default:
		g.pass(w, r, a)
	}
}

func (g *gate) turnAway(w http.ResponseWriter, r *http.Request, a *core.Admission,
	write func(http.ResponseWriter, *http.Request, *core.Admission)) {
	defer a.Done(a.Outcome().Status())
	write(w, r, a)
}

func (g *gate) pass(w http.ResponseWriter, r *http.Request, a *core.Admission) {
	next := g.next
	if g.degraded != nil && a.Degraded() {
		next = g.degraded
	}
	if a.NeedsContext() {
		r = r.WithContext(core.NewContext(r.Context(), a))
	}
	if !a.NeedsStatus() && !a.HoldsLeases() {
		defer a.Done(http.StatusOK)
		next.ServeHTTP(w, r)
		return
	}
	rec := &recorder{ResponseWriter: w, admission: a, status: http.StatusInternalServerError}
	defer func() { a.Done(rec.status) }()
	next.ServeHTTP(rec.wrapped(), r)
	rec.status = rec.answered() // not reached by a panic
}
