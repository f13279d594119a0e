package fibermw

import (
	"errors"

	"github.com/gofiber/fiber/v2"

	"github.com/headgate/headgate/limiter"
)

// New returns middleware that has l decide about every request. It is safe for
// concurrent use and may be used in any number of places. A request that meets
// l more than once, also by fiber.Ctx.RestartRouting, is counted the first time.
// New writes what is wrong with l or an option to the log of l; see
// [limiter.Limiter.CheckRequests]. A nil limiter answers 503.
func New(l *limiter.Limiter, opts ...Option) fiber.Handler {
	return (&gate{options: newOptions(l, opts), limiter: l}).handle
}

// gate stands before the handlers after it.
type gate struct {
	options
	limiter *limiter.Limiter
}

func (g *gate) handle(c *fiber.Ctx) error {
	if g.skip != nil && g.skip(c) {
		return c.Next()
	}
	if g.counted(c) {
		return g.answer(c, limiter.Degraded(c.UserContext()))
	}
	a := g.limiter.Admit(request{c})
	setHeaders(c, a)
	switch a.Outcome() {
	case limiter.Refused:
		return turnAway(c, a, g.refused)
	case limiter.Failed:
		return turnAway(c, a, g.failed)
	}
	return g.pass(c, a)
}

// counted reports whether the limiter has let the request pass before.
func (g *gate) counted(c *fiber.Ctx) bool {
	if c.Context().UserValue(g.limiter) == nil {
		return false
	}
	g.limiter.WarnTwice()
	return true
}

func (g *gate) pass(c *fiber.Ctx, a *limiter.Admission) (err error) {
	c.Context().SetUserValue(g.limiter, true) // until the request ends
	status := fiber.StatusInternalServerError
	defer func() { a.Done(status) }()
	if a.NeedsContext() {
		c.SetUserContext(limiter.NewContext(c.UserContext(), a))
	}
	if a.Degraded() {
		err = g.degrade(c, a)
	} else {
		err = c.Next()
	}
	status = statusOf(c, err) // not reached by a panic
	if a.HoldsLeases() && outlives(c) {
		holdUntilSent(c, a)
	}
	return err
}

// answer has a request that passes answered.
func (g *gate) answer(c *fiber.Ctx, degraded bool) error {
	if degraded && g.degraded != nil {
		return g.degraded(c)
	}
	return c.Next()
}

// statusOf is the status of the answer once the handler has returned err. For
// an error it is the one that Fiber's own error handler answers.
func statusOf(c *fiber.Ctx, err error) int {
	if err == nil {
		return c.Context().Response.StatusCode()
	}
	var e *fiber.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return fiber.StatusInternalServerError
}
