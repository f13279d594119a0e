package echomw

import (
	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/limiter"
)

// Option changes what [New] returns.
type Option func(*options)

type options struct {
	skipper         func(echo.Context) bool
	refused, failed func(echo.Context, *limiter.Admission) error
	degraded        echo.HandlerFunc
}

// WithSkipper lets requests for which skipper returns true pass uncounted. It
// may be a Skipper of Echo's own middleware package.
func WithSkipper(skipper func(echo.Context) bool) Option {
	return func(o *options) { o.skipper = skipper }
}

// WithRefused has answer write what a refused request gets instead of the 429
// with a problem body, or return an error for Echo's error handler. The headers
// of the limiter are set already. It must not keep the admission. [Answer] makes
// one of a template of package core, such as limiter.PlainText.
func WithRefused(answer func(echo.Context, *limiter.Admission) error) Option {
	return func(o *options) { o.refused = answer }
}

// WithFailed is [WithRefused] for the 503 that a request gets when nobody could
// decide and the limiter fails closed.
func WithFailed(answer func(echo.Context, *limiter.Admission) error) Option {
	return func(o *options) { o.failed = answer }
}

// WithDegraded has fallback answer requests over the limit of a Degrade rule;
// see [Fallback].
func WithDegraded(fallback echo.HandlerFunc) Option {
	return func(o *options) { o.degraded = fallback }
}
