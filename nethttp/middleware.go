package nethttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/exchange"
	"github.com/headgate/headgate/internal/httpexchange"
	"github.com/headgate/headgate/internal/setup"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/findings"
)

// New returns middleware that asks l about every request. It is safe for
// concurrent use and may wrap any number of handlers. A request that meets l
// more than once is counted the first time; see [limiter.Limiter.Counted]. New
// takes one Config or none, and ignores any but the first. It logs mistakes in l and in the
// Config to the log of l; see [limiter.Limiter.CheckRequests]. A nil limiter answers 503. A nil
// handler is logged too, and the requests that pass get 404.
func New(l *limiter.Limiter, config ...Config) func(http.Handler) http.Handler {
	c, err := setup.ConfigOf(l, config)

	// A nil Degraded would panic at the first request over the limit, which may be much later.
	if c.Degraded != nil && isNil(c.Degraded) {
		c.Degraded = nil
		err = errors.Join(err, errNoFallback)
	}

	l.LogSetup("nethttp.New", err)

	return func(next http.Handler) http.Handler {
		if isNil(next) {
			l.LogSetup("nethttp.New", errNoHandler)
			next = http.NotFoundHandler()
		}
		return newMiddleware(l, c, next)
	}
}

var (
	errNoHandler  = errors.New("the handler is nil, so requests that pass get 404")
	errNoFallback = errors.New("Config.Degraded is an http.HandlerFunc that is nil, and is ignored")
)

// isNil reports whether h is nil or an [http.HandlerFunc] that is nil.
func isNil(h http.Handler) bool {
	f, ok := h.(http.HandlerFunc)
	return h == nil || ok && f == nil
}

// middleware limits the requests to one handler.
type middleware struct{ exchange.Exchange[call] }

// call is a request with its answer.
type call struct {
	w   http.ResponseWriter
	r   *http.Request
	rec *httpexchange.Recorder // nil unless the call is watched
}

func newMiddleware(l *limiter.Limiter, c Config, next http.Handler) *middleware {
	f := &framework{limiter: l, next: next}
	// A TimeoutHandler answers while the handler in it goes on.
	f.outlived = fmt.Sprintf("%T", next) == "*http.timeoutHandler"

	m := &middleware{exchange.Exchange[call]{Limiter: l, Framework: f, Refused: own(c.Refused), Failed: own(c.Failed)}}
	if c.Skip != nil {
		m.Skip = func(x call) bool { return c.Skip(x.r) }
	}
	if c.Degraded != nil {
		m.Degraded = func(x call) error { c.Degraded.ServeHTTP(x.w, x.r); return nil }
	}
	return m
}

// own returns a function of the Config, or nil. It has answered if it has sent a status or
// taken over the connection.
func own(f func(http.ResponseWriter, *http.Request, *limiter.Admission)) exchange.Own[call] {
	if f == nil {
		return nil
	}
	return func(x call, a *limiter.Admission) (answered bool, err error) {
		rec := &httpexchange.Recorder{ResponseWriter: x.w, Admission: a}
		f(rec.Wrapped(), x.r, a)
		return rec.Sent != 0, nil
	}
}

// ServeHTTP passes an admitted request to the handler and answers the others.
func (m *middleware) ServeHTTP(w http.ResponseWriter, r *http.Request) { _ = m.Serve(call{w: w, r: r}) }

// framework is net/http around one handler.
type framework struct {
	limiter  *limiter.Limiter
	next     http.Handler
	outlived bool // by a handler in next
}

func (*framework) Context(x call) context.Context { return x.r.Context() }

func (f *framework) Ask(x call) (call, *limiter.Admission) {
	met, counted := httpexchange.Meet(f.limiter, x.w, x.r)
	if counted {
		return x, nil
	}
	a := f.limiter.Admit(request{x.r})
	x.r = met.Enter(x.w, x.r, a)
	return x, a
}

func (f *framework) Next(x call) error { f.next.ServeHTTP(x.w, x.r); return nil }

func (f *framework) Watch(x call, a *limiter.Admission) call {
	if f.outlived && a.HoldsLeases() {
		f.limiter.Warn(core.Finding{Code: findings.EndsEarly,
			Text: "a concurrency limit is around an http.TimeoutHandler, whose answer frees the place while its " +
				"handler goes on: put the limit inside the TimeoutHandler"})
	}
	x.rec = httpexchange.Record(x.w, x.r, a)
	x.w = x.rec.Wrapped()
	return x
}

func (*framework) End(x call, a *limiter.Admission, _ error, returned bool) (status int) {
	if returned {
		return cmp.Or(x.rec.Sent, a.Unanswered(http.StatusOK))
	}
	return cmp.Or(x.rec.Sent, http.StatusInternalServerError)
}

func (*framework) Write(x call, a *limiter.Admission) (bool, error) {
	return httpexchange.Write(x.w, a)
}
