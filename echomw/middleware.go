package echomw

import (
	"context"
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"

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
	l.LogSetup("echomw.New", err)

	x := &exchange.Exchange[call]{
		Limiter: l, Framework: &framework{limiter: l}, Refused: own(c.Refused), Failed: own(c.Failed),
	}
	if c.Skip != nil {
		x.Skip = func(x call) bool { return c.Skip(x.Context) }
	}
	if c.Degraded != nil {
		x.Degraded = func(x call) error { return c.Degraded(x.Context) }
	}

	// One exchange serves all routes; each call brings its handler.
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { return x.Serve(call{Context: c, next: next}) }
	}
}

// call is a request with its answer.
type call struct {
	echo.Context
	next   echo.HandlerFunc
	writer *httpexchange.Writer // nil unless the call is watched
}

// own returns a function of the Config, or nil. It has answered if it has sent a status or
// taken over the connection.
func own(f func(echo.Context, *limiter.Admission) error) exchange.Own[call] {
	if f == nil {
		return nil
	}

	return func(x call, a *limiter.Admission) (answered bool, err error) {
		answer := x.Response()
		w := &httpexchange.Writer{ResponseWriter: answer.Writer, Admission: a}
		answer.Writer = w
		err = f(x.Context, a)

		// A writer that the function has put around this one stays, and answers through it.
		if x.Response().Writer == w {
			x.Response().Writer = w.ResponseWriter
		}

		return x.Response().Committed || w.Hijacked, err
	}
}

// framework is Echo around the handlers inside the middleware.
type framework struct {
	limiter  *limiter.Limiter
	requests sync.Pool // of *request
}

func (*framework) Context(x call) context.Context { return x.Request().Context() }

func (f *framework) Ask(x call) (call, *limiter.Admission) {
	// The Response wraps its Writer, and has its header.
	met, counted := httpexchange.Meet(f.limiter, x.Response().Writer, x.Request())
	if counted {
		return x, nil
	}
	a := f.admit(x.Context)

	// Functions of rules may have set another request or writer.
	r := x.Request()
	if entered := met.Enter(x.Response().Writer, r, a); entered != r {
		x.SetRequest(entered)
	}
	return x, a
}

// admit gives the rules a view of the request that they must not keep.
func (f *framework) admit(c echo.Context) *limiter.Admission {
	r, ok := f.requests.Get().(*request)
	if !ok {
		r = &request{}
	}
	r.c = c
	a := f.limiter.Admit(r)
	r.c = nil
	f.requests.Put(r)
	return a
}

func (*framework) Next(x call) error { return x.next(x.Context) }

func (*framework) Watch(x call, a *limiter.Admission) call {
	answer := x.Response()
	x.writer = &httpexchange.Writer{ResponseWriter: answer.Writer, Admission: a}
	x.writer.See(x.Request())
	answer.Writer = x.writer
	return x
}

// End returns the status of the answer, or the one that Echo's default error handler sends for
// err.
func (*framework) End(x call, a *limiter.Admission, err error, returned bool) int {
	switch answer := x.Response(); {
	case answer.Committed:
		return answer.Status
	case !returned:
		return http.StatusInternalServerError
	case x.writer.Hijacked:
		return http.StatusSwitchingProtocols
	case err != nil:
		return statusOfError(err)
	default:
		return a.Unanswered(answer.Status)
	}
}

func (*framework) Write(x call, a *limiter.Admission) (bool, error) {
	return httpexchange.Write(x.Response(), a)
}
