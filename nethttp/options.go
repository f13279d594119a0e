package nethttp

import (
	"net/http"

	"github.com/headgate/headgate/limiter"
)

// Option changes what [New] returns.
type Option func(*options)

type options struct {
	skip            func(*http.Request) bool
	refused, failed func(http.ResponseWriter, *http.Request, *limiter.Admission)
	degraded        http.Handler
}

// WithSkip lets requests for which skip returns true pass uncounted.
func WithSkip(skip func(*http.Request) bool) Option {
	return func(o *options) { o.skip = skip }
}

// WithRefused has answer write what a refused request gets instead of the 429
// with a problem body. The headers of the limiter are set already. It must not
// keep the admission. [Answer] makes one of a template of package core, such as
// limiter.PlainText.
func WithRefused(answer func(http.ResponseWriter, *http.Request, *limiter.Admission)) Option {
	return func(o *options) { o.refused = answer }
}

// WithFailed is [WithRefused] for the 503 that a request gets when nobody could
// decide and the limiter fails closed.
func WithFailed(answer func(http.ResponseWriter, *http.Request, *limiter.Admission)) Option {
	return func(o *options) { o.failed = answer }
}

// WithDegraded has fallback answer requests over the limit of a Degrade rule;
// see [Fallback].
func WithDegraded(fallback http.Handler) Option {
	return func(o *options) { o.degraded = fallback }
}
