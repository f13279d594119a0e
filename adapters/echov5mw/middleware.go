package echov5mw

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v5"

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
	c, err := setup.ConfigOf(l, config)
	if c.Limiter != nil && c.Limiter != l {
		err = errors.Join(err, errLimiter)
	}
	l.LogSetup("echov5mw.New", err)
	return around(l, c)
}

var errLimiter = errors.New("Config.Limiter is another limiter than that of New, and is ignored")

// ToMiddleware returns the middleware of Config.Limiter, or an error with the mistakes that New
// would log.
func (c Config) ToMiddleware() (echo.MiddlewareFunc, error) {
	if err := c.Limiter.CheckRequests(); err != nil {
		return nil, err
	}
	return around(c.Limiter, c), nil
}

func around(l *limiter.Limiter, config Config) echo.MiddlewareFunc {
	m := &middleware{config: config, limiter: l}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error { return m.handle(c, next) }
	}
}

// middleware limits the requests to the handlers that it is put around.
type middleware struct {
	config  Config
	limiter *limiter.Limiter
}

func (m *middleware) handle(c *echo.Context, next echo.HandlerFunc) error {
	if m.config.Skip != nil && m.limiter.Try("Config.Skip", func() bool { return m.config.Skip(c) }) {
		return next(c)
	}

	header, mark := c.Response().Header(), httpexchange.In(c.Request().Context())
	if m.limiter.Counted(header) || mark != nil && m.limiter.CountedBy(mark) {
		return m.handler(next, limiter.Degraded(c.Request().Context()))(c)
	}

	a := m.limiter.Admit(request{c})
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

func pass(c *echo.Context, a *limiter.Admission, next echo.HandlerFunc) (err error) {
	if a.NeedsContext() {
		c.SetRequest(c.Request().WithContext(limiter.NewContext(c.Request().Context(), a)))
	}
	if !a.NeedsStatus() && !a.HoldsLeases() {
		defer a.Done(http.StatusOK)
		return next(c)
	}
	w, returned := wrap(c, a), false
	defer func() { a.Done(statusOf(w, a, err, returned)) }()
	err = next(c)
	w.unwrap(c)
	returned = true // not reached by a panic
	return err
}
