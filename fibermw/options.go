package fibermw

import (
	"github.com/gofiber/fiber/v2"

	"github.com/headgate/headgate/limiter"
)

// Option changes what [New] returns.
type Option func(*options)

type options struct {
	next            func(*fiber.Ctx) bool
	refused, failed func(*fiber.Ctx, *limiter.Admission) error
	degraded        fiber.Handler
}

// WithNext lets requests for which next returns true pass uncounted.
func WithNext(next func(*fiber.Ctx) bool) Option {
	return func(o *options) { o.next = next }
}

// WithRefused has answer write what a refused request gets instead of the 429
// with a problem body, or return an error for Fiber's error handler. The headers
// of the limiter are set already. It must not keep the admission. [Answer] makes
// one of a template of package core, such as limiter.PlainText.
func WithRefused(answer func(*fiber.Ctx, *limiter.Admission) error) Option {
	return func(o *options) { o.refused = answer }
}

// WithFailed is [WithRefused] for the 503 that a request gets when nobody could
// decide and the limiter fails closed.
func WithFailed(answer func(*fiber.Ctx, *limiter.Admission) error) Option {
	return func(o *options) { o.failed = answer }
}

// WithDegraded has fallback answer requests over the limit of a Degrade rule,
// instead of the handlers after the middleware; see [Fallback].
func WithDegraded(fallback fiber.Handler) Option {
	return func(o *options) { o.degraded = fallback }
}
