package fibermw

import (
	"context"
	"errors"

	"github.com/gofiber/fiber/v2"

	"github.com/headgate/headgate/internal/exchange"
	"github.com/headgate/headgate/internal/fasthttpexchange"
	"github.com/headgate/headgate/internal/setup"
	"github.com/headgate/headgate/limiter"
)

// New returns middleware that asks l about every request. It is safe for
// concurrent use and may be used in any number of places. A request that meets
// l more than once, also by fiber.Ctx.RestartRouting, is counted the first time.
// New takes one Config or none, and ignores any but the first. It logs mistakes in l and in the
// Config to the log of l; see [limiter.Limiter.CheckRequests]. A nil limiter answers 503.
func New(l *limiter.Limiter, config ...Config) fiber.Handler {
	c, err := setup.ConfigOf(l, config)
	l.LogSetup("fibermw.New", err)

	x := &exchange.Exchange[*fiber.Ctx]{Limiter: l, Framework: framework{l}, Skip: c.Skip,
		Refused: own(l, c.Refused), Failed: own(l, c.Failed), Degraded: c.Degraded}
	return x.Serve
}

// own returns a function of the Config, or nil.
func own(l *limiter.Limiter, f func(*fiber.Ctx, *limiter.Admission) error) exchange.Own[*fiber.Ctx] {
	if f == nil {
		return nil
	}
	return func(c *fiber.Ctx, a *limiter.Admission) (bool, error) {
		return fasthttpexchange.Answered(l, c.Context(), func() error { return f(c, a) })
	}
}

// framework is Fiber around the handlers after the middleware.
type framework struct{ limiter *limiter.Limiter }

func (framework) Context(c *fiber.Ctx) context.Context { return c.UserContext() }

func (f framework) Ask(c *fiber.Ctx) (*fiber.Ctx, *limiter.Admission) {
	mark, counted := fasthttpexchange.Meet(f.limiter, c.Context())
	if counted {
		return c, nil
	}
	a := f.limiter.Admit(request{c})
	fasthttpexchange.Enter(c.Context(), a, mark)
	if a.NeedsContext() {
		c.SetUserContext(limiter.NewContext(c.UserContext(), a))
	}
	return c, a
}

func (framework) Next(c *fiber.Ctx) error { return c.Next() }

func (framework) Watch(c *fiber.Ctx, a *limiter.Admission) *fiber.Ctx {
	fasthttpexchange.Watch(c.Context(), a)
	return c
}

// End returns the status of the answer, or the one that Fiber's default error handler sends for
// err.
func (framework) End(c *fiber.Ctx, a *limiter.Admission, err error, returned bool) int {
	if !returned {
		return fiber.StatusInternalServerError
	}

	fasthttpexchange.See(a, &c.Context().Response)

	// What is sent after the handlers have returned, such as a stream, holds the leases until then.
	if a.HoldsLeases() && fasthttpexchange.Outlives(c.Context()) {
		fasthttpexchange.HoldUntilSent(c.Context(), a)
	}

	var e *fiber.Error
	switch {
	case err == nil:
		return c.Context().Response.StatusCode()
	case errors.As(err, &e):
		return e.Code
	}
	return fiber.StatusInternalServerError
}

func (framework) Write(c *fiber.Ctx, a *limiter.Admission) (bool, error) {
	return fasthttpexchange.Write(c.Context(), a), nil
}
