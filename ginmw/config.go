package ginmw

import (
	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/limiter"
)

// Config is what a program adds to the middleware of [New]. Each field may be nil.
type Config struct {
	// Skip makes the middleware ignore the requests for which it returns true: they reach the
	// handlers uncounted. A request for which it panics is counted, and the panic is an error for
	// OnError.
	Skip func(*gin.Context) bool

	// Refused answers refused requests, and takes precedence over the Refused of the limiter's own
	// Config. The headers of the limiter are set before the call, and the handlers after the
	// middleware do not run. It must not keep the admission. If it writes nothing, the answer is
	// that of the limiter's Config.
	Refused func(*gin.Context, *limiter.Admission)

	// Failed is like Refused, for requests that get a 503 because the store could not decide and
	// the limiter fails closed, or because too many requests wait already; see
	// [limiter.Admission.Outcome]. It takes precedence over the Failed of the limiter's Config.
	Failed func(*gin.Context, *limiter.Admission)

	// Degraded answers requests over the limit of a Degrade rule, instead of the handlers after
	// the middleware, and takes precedence over the Degraded of the limiter's Config.
	Degraded gin.HandlerFunc
}
