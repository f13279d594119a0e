package fiberv3mw

import (
	"context"
	"errors"
	"sync"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

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
//
// [limiter.FromContext] and [limiter.Degraded] find the result in fiber.Ctx.Context, and also in
// the fiber.Ctx itself, which is a context that never ends. Only fiber.Ctx.Context ends when a
// lease is lost and the limiter has CancelOnLostLease.
func New(l *limiter.Limiter, config ...Config) fiber.Handler {
	c, err := setup.ConfigOf(l, config)
	l.LogSetup("fiberv3mw.New", err)

	x := &exchange.Exchange[fiber.Ctx]{Limiter: l, Framework: &framework{limiter: l}, Skip: c.Skip,
		Refused: own(l, c.Refused), Failed: own(l, c.Failed), Degraded: c.Degraded}
	return x.Serve
}

// own returns a function of the Config, or nil.
func own(l *limiter.Limiter, f func(fiber.Ctx, *limiter.Admission) error) exchange.Own[fiber.Ctx] {
	if f == nil {
		return nil
	}
	return func(c fiber.Ctx, a *limiter.Admission) (bool, error) {
		return fasthttpexchange.Answered(l, c.RequestCtx(), func() error { return f(c, a) })
	}
}

// framework is Fiber around the handlers after the middleware.
type framework struct {
	limiter  *limiter.Limiter
	requests sync.Pool // of *request
}

func (*framework) Context(c fiber.Ctx) context.Context { return c.Context() }

func (f *framework) Ask(c fiber.Ctx) (fiber.Ctx, *limiter.Admission) {
	mark, counted := fasthttpexchange.Meet(f.limiter, c.RequestCtx())
	if counted {
		return c, nil
	}
	a := f.admit(c)
	fasthttpexchange.Enter(c.RequestCtx(), a, mark)
	if a.NeedsContext() {
		c.SetContext(limiter.NewContext(c.Context(), a))
		c.RequestCtx().SetUserValue(a.ContextValue()) // for handlers that pass c as a context
	}
	return c, a
}

// admit gives the rules a view of the request that they must not keep.
func (f *framework) admit(c fiber.Ctx) *limiter.Admission {
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

func (*framework) Next(c fiber.Ctx) error { return c.Next() }

func (*framework) Watch(c fiber.Ctx, a *limiter.Admission) fiber.Ctx {
	fasthttpexchange.Watch(c.RequestCtx(), a)
	return c
}

// End returns the status of the answer, or the one that Fiber's default error handler sends for
// err.
func (*framework) End(c fiber.Ctx, a *limiter.Admission, err error, returned bool) int {
	if !returned {
		return fiber.StatusInternalServerError
	}

	fasthttpexchange.See(a, answerOf(c))

	// What is sent after the handlers have returned, such as a stream, holds the leases until then.
	if a.HoldsLeases() && outlives(c) {
		fasthttpexchange.HoldUntilSent(c.RequestCtx(), a)
	}

	var e *fiber.Error
	switch {
	case err == nil:
		return answerOf(c).StatusCode()
	case errors.As(err, &e):
		return e.Code
	}
	return fiber.StatusInternalServerError
}

func (*framework) Write(c fiber.Ctx, a *limiter.Admission) (bool, error) {
	return fasthttpexchange.Write(c.RequestCtx(), a), nil
}

// outlives reports whether the answer is still sent after the handlers have returned.
func outlives(c fiber.Ctx) bool {
	ctx := c.RequestCtx()
	return ctx.LastTimeoutErrorResponse() == nil && fasthttpexchange.Outlives(ctx)
}

// answerOf returns the answer that is sent. If timeout middleware has given up the
// handlers, that is the one that it made. The handlers may still write the other.
func answerOf(c fiber.Ctx) *fasthttp.Response {
	if timeout := c.RequestCtx().LastTimeoutErrorResponse(); timeout != nil {
		return timeout
	}
	return &c.RequestCtx().Response
}
