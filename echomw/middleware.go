package echomw

import (
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/httpexchange"
	"github.com/headgate/headgate/internal/setup"
	"github.com/headgate/headgate/limiter"
)

// New returns middleware that asks l about every request. It is safe for
// concurrent use and may be used in any number of places. A request that meets
// l more than once is counted the first time; see [limiter.Limiter.Counted]. New
// logs mistakes in l and in the Config to the log of l; see
// [limiter.Limiter.CheckRequests]. A nil limiter answers 503.
func New(l *limiter.Limiter, config ...Config) echo.MiddlewareFunc {
	m := &middleware{config: configOf(l, config), limiter: l}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { return m.handle(c, next) }
	}
}

// configOf returns the Config of New, and logs the mistakes in it.
func configOf(l *limiter.Limiter, list []Config) Config {
	config, err := setup.ConfigOf(l, list)
	l.LogSetup("echomw.New", err)
	return config
}

// middleware limits the requests to the handlers that it is put around.
type middleware struct {
	config   Config
	limiter  *limiter.Limiter
	requests sync.Pool // of *request
}

func (m *middleware) handle(c echo.Context, next echo.HandlerFunc) error {
	if m.config.Skip != nil && m.limiter.Try("Config.Skip", func() bool { return m.config.Skip(c) }) {
		return next(c)
	}

	header, mark := c.Response().Header(), httpexchange.In(c.Request().Context())
	if m.limiter.Counted(header) || mark != nil && m.limiter.CountedBy(mark) {
		return m.handler(next, limiter.Degraded(c.Request().Context()))(c)
	}

	a := m.admit(c)
	if mark != nil {
		a.Merge(mark, header.Get)
	}
	a.SetHeaders(header)

	switch a.Status() {
	case 0:
		c.SetRequest(httpexchange.Leave(c.Response(), header, c.Request(), a))
		if a.Degraded() {
			next = m.degrade(next, a)
		}
		return pass(c, a, next)
	case http.StatusServiceUnavailable:
		return reject(c, a, m.config.Failed)
	}
	return reject(c, a, m.config.Refused)
}

// handler returns the handler of an admitted request.
func (m *middleware) handler(next echo.HandlerFunc, degraded bool) echo.HandlerFunc {
	if degraded && m.config.Degraded != nil {
		return m.config.Degraded
	}
	return next
}

// admit gives the rules a view of the request that they must not keep.
func (m *middleware) admit(c echo.Context) *limiter.Admission {
	r, ok := m.requests.Get().(*request)
	if !ok {
		r = &request{}
	}
	r.c = c
	a := m.limiter.Admit(r)
	r.c = nil
	m.requests.Put(r)
	return a
}

func pass(c echo.Context, a *limiter.Admission, next echo.HandlerFunc) error {
	if a.NeedsContext() {
		c.SetRequest(c.Request().WithContext(limiter.NewContext(c.Request().Context(), a)))
	}
	if !a.NeedsStatus() && !a.HoldsLeases() {
		defer a.Done(http.StatusOK)
		return next(c)
	}

	status := http.StatusInternalServerError
	defer func() {
		if answer := c.Response(); answer.Committed {
			status = answer.Status
		}
		a.Done(status)
	}()
	w := &writer{ResponseWriter: c.Response().Writer, admission: a}
	c.Response().Writer = w
	err := next(c)
	switch { // not reached by a panic
	case w.hijacked:
		status = http.StatusSwitchingProtocols
	case err != nil:
		status = statusOfError(err)
	default:
		status = a.Unanswered(c.Response().Status)
	}
	return err
}
