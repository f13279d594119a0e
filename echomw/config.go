package echomw

import (
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/limiter"
)

// Config is what a program adds to the middleware of [New]. Each field may be nil.
type Config struct {
	// Skip makes the middleware ignore the requests for which it returns true: they reach the
	// handlers uncounted. It may be a Skipper of Echo's middleware package. A request for which it
	// panics is counted, and the panic is an error for OnError.
	Skip func(echo.Context) bool

	// Refused answers refused requests, and takes precedence over the Refused of the limiter's own
	// Config. The headers of the limiter are set before the call. It may return an error for
	// Echo's error handler, and must not keep the admission. If it writes nothing and returns nil,
	// the answer is that of the limiter's Config.
	Refused func(echo.Context, *limiter.Admission) error

	// Failed is like Refused, for requests that get a 503 because the store could not decide and
	// the limiter fails closed, or because too many requests wait already; see
	// [limiter.Admission.Outcome]. It takes precedence over the Failed of the limiter's Config.
	Failed func(echo.Context, *limiter.Admission) error

	// Degraded answers requests over the limit of a Degrade rule, instead of the handler, and
	// takes precedence over the Degraded of the limiter's Config.
	Degraded echo.HandlerFunc
}
