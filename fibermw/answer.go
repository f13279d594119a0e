package fibermw

import (
	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/headgate/headgate/limiter"
)

// Answer writes what the template returns, for [WithRefused] and [WithFailed]:
//
//	fibermw.WithRefused(fibermw.Answer(limiter.JSON))
func Answer(t limiter.Template) func(*fiber.Ctx, *limiter.Admission) error {
	return func(c *fiber.Ctx, a *limiter.Admission) error { return write(c, t(a)) }
}

// Fallback answers every request with one answer that is kept ready, for
// [WithDegraded].
func Fallback(answer limiter.Answer) fiber.Handler {
	return func(c *fiber.Ctx) error { return write(c, answer) }
}

// problem writes what [Answer] of limiter.ProblemJSON does.
func problem(c *fiber.Ctx, a *limiter.Admission) error {
	answer := c.Status(a.Outcome().Status()).Response()
	answer.Header.SetContentType(limiter.ProblemType)
	return a.WriteProblem(body{answer})
}

// body is the whole body of an answer.
type body struct{ *fasthttp.Response }

// Write replaces the body.
func (b body) Write(p []byte) (int, error) {
	b.SetBody(p)
	return len(p), nil
}

func write(c *fiber.Ctx, answer limiter.Answer) error {
	header := &c.Context().Response.Header
	for _, h := range answer.Headers {
		header.Set(h.Name, h.Value)
	}
	return c.Status(answer.Status).Send(answer.Body)
}

func setHeaders(c *fiber.Ctx, a *limiter.Admission) {
	header := &c.Context().Response.Header
	a.EachHeader(func(name string, value []byte) { header.SetCanonical([]byte(name), value) })
}
