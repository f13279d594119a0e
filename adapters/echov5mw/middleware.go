package echov5mw

import (
	"context"
	"errors"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate/internal/exchange"
	"github.com/headgate/headgate/internal/httpexchange"
	"github.com/headgate/headgate/internal/setup"
	"github.com/headgate/headgate/limiter"
)

// New returns middleware that asks l about every request. It is safe for
// concurrent use and may be used in any number of places. A request that meets
// l more than once is counted the first time; see [limiter.Limiter.Counted]. New
// takes one Config or none, and ignores any but the first. It logs mistakes in l and in the
// Config to the log of l; see [limiter.Limiter.CheckRequests]. A nil limiter answers 503.
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

func around(l *limiter.Limiter, c Config) echo.MiddlewareFunc {
	x := &exchange.Exchange[call]{Limiter: l, Framework: framework{l}, Refused: own(c.Refused), Failed: own(c.Failed)}
	if c.Skip != nil {
		x.Skip = func(x call) bool { return c.Skip(x.Context) }
	}
	if c.Degraded != nil {
		x.Degraded = func(x call) error { return c.Degraded(x.Context) }
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error { return x.Serve(call{Context: c, next: next}) }
	}
}

// call is a request with its answer.
type call struct {
	*echo.Context
	next   echo.HandlerFunc
	writer *writer // nil unless the call is watched
}

// own returns a function of the Config, or nil. It has answered if it has sent a status or
// taken over the connection.
func own(f func(*echo.Context, *limiter.Admission) error) exchange.Own[call] {
	if f == nil {
		return nil
	}
	return func(x call, a *limiter.Admission) (answered bool, err error) {
		w := wrap(x.Context, a)
		err = f(x.Context, a)
		w.unwrap(x.Context)
		return w.answered(), err
	}
}

// framework is Echo around the handlers inside the middleware.
type framework struct{ limiter *limiter.Limiter }

func (framework) Context(x call) context.Context { return x.Request().Context() }

func (f framework) Ask(x call) (call, *limiter.Admission) {
	met, counted := httpexchange.Meet(f.limiter, x.Response(), x.Request())
	if counted {
		return x, nil
	}
	a := f.limiter.Admit(request{x.Context})
	x.SetRequest(met.Enter(x.Response(), x.Request(), a)) // functions of rules may have set another
	return x, a
}

func (framework) Next(x call) error { return x.next(x.Context) }

func (framework) Watch(x call, a *limiter.Admission) call {
	x.writer = wrap(x.Context, a)
	x.writer.See(x.Request())
	return x
}

func (framework) End(x call, a *limiter.Admission, err error, returned bool) int {
	if returned {
		x.writer.unwrap(x.Context)
	}
	return statusOf(x.writer, a, err, returned)
}

func (framework) Write(x call, a *limiter.Admission) (bool, error) {
	return httpexchange.Write(x.Response(), a)
}
