package ginmw

import (
	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/limiter"
)

// Option changes what [New] returns.
type Option func(*options)

type options struct {
	skip            func(*gin.Context) bool
	refused, failed func(*gin.Context, *limiter.Admission)
	degraded        gin.HandlerFunc
}

// WithSkip lets requests for which skip returns true pass uncounted.
func WithSkip(skip func(*gin.Context) bool) Option {
	return func(o *options) { o.skip = skip }
}

// WithRefused has answer write what a refused request gets instead of the 429
// with a problem body. The headers of the limiter are set already, and the
// handlers after it do not run. It must not keep the admission. [Answer] makes
// one of a template of package core, such as limiter.PlainText.
func WithRefused(answer func(*gin.Context, *limiter.Admission)) Option {
	return func(o *options) { o.refused = answer }
}

// WithFailed is [WithRefused] for the 503 that a request gets when nobody could
// decide and the limiter fails closed.
func WithFailed(answer func(*gin.Context, *limiter.Admission)) Option {
	return func(o *options) { o.failed = answer }
}

// WithDegraded has fallback answer requests over the limit of a Degrade rule,
// instead of the handlers after the middleware; see [Fallback].
func WithDegraded(fallback gin.HandlerFunc) Option {
	return func(o *options) { o.degraded = fallback }
}
