package nethttp

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/httpexchange"
	"github.com/headgate/headgate/internal/setup"
	"github.com/headgate/headgate/limiter"
)

// New returns middleware that asks l about every request. It is safe for
// concurrent use and may wrap any number of handlers. A request that meets l
// more than once is counted the first time; see [limiter.Limiter.Counted]. New
// logs mistakes in l and in the Config to the log of l; see
// [limiter.Limiter.CheckRequests]. A nil limiter answers 503. A nil handler is such a
// mistake, and the requests that pass get 404.
func New(l *limiter.Limiter, config ...Config) func(http.Handler) http.Handler {
	c, err := setup.ConfigOf(l, config)
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
		return &middleware{config: c, limiter: l, next: next, outlived: endsEarly(next)}
	}
}

// endsEarly reports whether a handler is an http.TimeoutHandler, which answers while the
// handler in it goes on.
func endsEarly(h http.Handler) bool { return fmt.Sprintf("%T", h) == "*http.timeoutHandler" }

// CodeEndsEarly: a lease ended with the answer of an http.TimeoutHandler, while the handler in
// it may go on.
const CodeEndsEarly = "HG020"

func (m *middleware) warnOutlived() {
	m.limiter.Warn(core.Finding{Code: CodeEndsEarly, Text: "a concurrency limit is around an http.TimeoutHandler, whose answer frees " +
		"the place while its handler goes on: put the limit inside the TimeoutHandler"})
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
type middleware struct {
	config  Config
	limiter *limiter.Limiter
	next    http.Handler

	outlived bool // by a handler in next
}

// ServeHTTP passes an admitted request to the handler and answers the others.
func (m *middleware) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if m.config.Skip != nil && m.limiter.Try("Config.Skip", func() bool { return m.config.Skip(r) }) {
		m.next.ServeHTTP(w, r)
		return
	}
	header, mark := w.Header(), httpexchange.In(r.Context())
	if m.limiter.Counted(header) || mark != nil && m.limiter.CountedBy(mark) {
		m.handler(limiter.Degraded(r.Context())).ServeHTTP(w, r)
		return
	}
	a := m.limiter.Admit(request{r})
	if mark != nil {
		a.Merge(mark, header.Get)
	}
	a.SetHeaders(header)
	switch a.Status() {
	case 0:
		m.pass(w, httpexchange.Leave(w, header, r, a), a)
	case http.StatusServiceUnavailable:
		reject(w, r, a, m.config.Failed)
	default:
		reject(w, r, a, m.config.Refused)
	}
}

// handler returns the handler of an admitted request.
func (m *middleware) handler(degraded bool) http.Handler {
	if degraded && m.config.Degraded != nil {
		return m.config.Degraded
	}
	return m.next
}

func (m *middleware) pass(w http.ResponseWriter, r *http.Request, a *limiter.Admission) {
	next := m.handler(a.Degraded())
	if a.Degraded() && m.config.Degraded == nil {
		next = degradedHandler{a, m.next}
	}
	if a.NeedsContext() {
		r = r.WithContext(limiter.NewContext(r.Context(), a))
	}
	if !a.NeedsStatus() && !a.HoldsLeases() {
		defer a.Done(http.StatusOK)
		next.ServeHTTP(w, r)
		return
	}
	if m.outlived && a.HoldsLeases() {
		m.warnOutlived()
	}
	rec, status := &recorder{ResponseWriter: w, admission: a}, http.StatusInternalServerError
	defer func() { a.Done(cmp.Or(rec.sent, status)) }()
	next.ServeHTTP(rec.wrapped(), r)
	status = a.Unanswered(http.StatusOK) // not reached by a panic
}
