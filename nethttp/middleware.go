package nethttp

import (
	"net/http"

	"github.com/headgate/headgate/limiter"
)

// New returns middleware that has l decide about every request. It is safe for
// concurrent use and may wrap any number of handlers. A request that meets l
// more than once is counted the first time; see [limiter.Limiter.Counted]. New
// writes what is wrong with l or an option to the log of l; see
// [limiter.Limiter.CheckRequests]. A nil limiter answers 503.
func New(l *limiter.Limiter, opts ...Option) func(http.Handler) http.Handler {
	o := newOptions(l, opts)
	return func(next http.Handler) http.Handler {
		return &gate{options: o, limiter: l, next: next}
	}
}

// gate stands before a handler.
type gate struct {
	options
	limiter *limiter.Limiter
	next    http.Handler
}

// ServeHTTP answers the request itself or has the handler do it.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.skip != nil && g.skip(r) {
		g.next.ServeHTTP(w, r)
		return
	}
	header := w.Header()
	if g.limiter.Counted(header) {
		g.handler(limiter.Degraded(r.Context())).ServeHTTP(w, r)
		return
	}
	a := g.limiter.Admit(request{r})
	a.SetHeaders(header)
	switch a.Outcome() {
	case limiter.Refused:
		turnAway(w, r, a, g.refused)
	case limiter.Failed:
		turnAway(w, r, a, g.failed)
	default:
		g.pass(w, r, a)
	}
}

// handler is what answers a request that passes.
func (g *gate) handler(degraded bool) http.Handler {
	if degraded && g.degraded != nil {
		return g.degraded
	}
	return g.next
}

func (g *gate) pass(w http.ResponseWriter, r *http.Request, a *limiter.Admission) {
	next := g.handler(a.Degraded())
	if a.Degraded() && g.degraded == nil {
		next = degradedHandler{a, g.next}
	}
	if a.NeedsContext() {
		r = r.WithContext(limiter.NewContext(r.Context(), a))
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
