package fiberv3mw

import (
	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/headgate/headgate/limiter"
)

// reject answers a refused or failed request. It calls own, the function of
// Config.Refused or Config.Failed, and writes the answer of the Config if own is nil or
// writes nothing.
func (m *middleware) reject(c fiber.Ctx, a *limiter.Admission, own func(fiber.Ctx, *limiter.Admission) error) error {
	defer a.Done(a.Status())
	if own != nil {
		if answered, err := m.answers(c, a, own); answered || err != nil {
			return err
		}
	}
	answer, _ := a.Answer()
	return write(c, answer)
}

// answerOf returns the answer that is sent. If timeout middleware has given up the
// handlers, that is the one that it made. The handlers may still write the other.
func answerOf(c fiber.Ctx) *fasthttp.Response {
	if timeout := c.RequestCtx().LastTimeoutErrorResponse(); timeout != nil {
		return timeout
	}
	return &c.RequestCtx().Response
}

// answers calls own and reports whether own has set a status or a body, or taken over
// the connection. What it has set is gone if it panics, which would end the process.
func (m *middleware) answers(c fiber.Ctx, a *limiter.Admission, own func(fiber.Ctx, *limiter.Admission) error) (bool, error) {
	answer := &c.RequestCtx().Response
	status := answer.StatusCode()
	var err error
	if !m.limiter.Try("Config.Refused or Config.Failed", func() bool { err = own(c, a); return true }) {
		answer.ResetBody()
		answer.SetStatusCode(status)
		return false, nil
	}
	return outlives(c) || answer.StatusCode() != status || len(answer.Body()) > 0, err
}

// degrade answers a request over the limit of a Degrade rule.
func (m *middleware) degrade(c fiber.Ctx, a *limiter.Admission) error {
	if m.config.Degraded == nil {
		if answer, ok := a.Answer(); ok {
			return write(c, answer)
		}
	}
	return m.answer(c, true)
}

// write copies the body, because the admission may reuse its memory.
func write(c fiber.Ctx, answer limiter.Answer) error {
	response := c.Status(answer.Status).Response()
	for _, h := range answer.Headers {
		if h.Name == fiber.HeaderContentType {
			response.Header.SetContentType(h.Value) // half the time of Set
			continue
		}
		response.Header.Set(h.Name, h.Value)
	}
	response.SetBody(answer.Body)
	return nil
}

// setHeaders writes the headers of the limiter, merged with those of the limiters whose
// mark the request has.
func setHeaders(c fiber.Ctx, a *limiter.Admission, mark *limiter.Mark) {
	header := &c.RequestCtx().Response.Header
	if mark != nil {
		a.Merge(mark, func(name string) string { return string(header.Peek(name)) })
	}
	a.EachHeader(func(name string, value []byte) { header.SetCanonical([]byte(name), value) })
}
