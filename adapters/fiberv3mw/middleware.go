package fiberv3mw

import (
	"errors"
	"sync"

	"github.com/gofiber/fiber/v3"

	"github.com/headgate/headgate/internal/setup"
	"github.com/headgate/headgate/limiter"
)

// New returns middleware that asks l about every request. It is safe for
// concurrent use and may be used in any number of places. A request that meets
// l more than once, also by fiber.Ctx.RestartRouting, is counted the first time.
// New logs mistakes in l and in the Config to the log of l; see
// [limiter.Limiter.CheckRequests]. A nil limiter answers 503.
func New(l *limiter.Limiter, config ...Config) fiber.Handler {
	return (&middleware{config: configOf(l, config), limiter: l}).handle
}

// configOf returns the Config of New, and logs the mistakes in it.
func configOf(l *limiter.Limiter, list []Config) Config {
	config, err := setup.ConfigOf(l, list)
	l.LogSetup("fiberv3mw.New", err)
	return config
}

// middleware limits the requests to the handlers after it.
type middleware struct {
	config   Config
	limiter  *limiter.Limiter
	requests sync.Pool // of *request
}

func (m *middleware) handle(c fiber.Ctx) error {
	if m.config.Skip != nil && m.limiter.Try("Config.Skip", func() bool { return m.config.Skip(c) }) {
		return c.Next()
	}
	mark, _ := c.RequestCtx().UserValue(markKey{}).(*limiter.Mark)
	if m.limiter.CountedBy(mark) {
		return m.answer(c, limiter.Degraded(c.Context()))
	}
	a := m.admit(c)
	setHeaders(c, a, mark)
	switch a.Status() {
	case 0:
		return m.pass(c, a)
	case fiber.StatusServiceUnavailable:
		return m.reject(c, a, m.config.Failed)
	}
	return m.reject(c, a, m.config.Refused)
}

// admit gives the rules a view of the request that they must not keep.
func (m *middleware) admit(c fiber.Ctx) *limiter.Admission {
	r, ok := m.requests.Get().(*request)
	if !ok {
		r = &request{}
	}
	r.c = c
	a := m.limiter.Admit(r)
	r.c = nil
	m.requests.Put(r)
	return a
}

// markKey is the key of the mark among the values of a request.
type markKey struct{}

func (m *middleware) pass(c fiber.Ctx, a *limiter.Admission) (err error) {
	c.RequestCtx().SetUserValue(markKey{}, a.Mark()) // until the request ends
	status := fiber.StatusInternalServerError
	defer func() { a.Done(status) }()
	if a.NeedsContext() {
		c.SetContext(limiter.NewContext(c.Context(), a))
		c.RequestCtx().SetUserValue(a.ContextValue()) // for handlers that pass c as a context
	}
	if a.Degraded() {
		err = m.degrade(c, a)
	} else {
		err = c.Next()
	}
	status = statusOf(c, err) // not reached by a panic
	if a.HoldsLeases() && outlives(c) {
		holdUntilSent(c, a)
	}
	return err
}

// answer calls the handlers, or the fallback for a degraded request if there is one.
func (m *middleware) answer(c fiber.Ctx, degraded bool) error {
	if degraded && m.config.Degraded != nil {
		return m.config.Degraded(c)
	}
	return c.Next()
}

// statusOf returns the status of the answer after the handler has returned err. For
// an error it is the status that Fiber's default error handler sends.
func statusOf(c fiber.Ctx, err error) int {
	if err == nil {
		return answerOf(c).StatusCode()
	}
	var e *fiber.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return fiber.StatusInternalServerError
}
