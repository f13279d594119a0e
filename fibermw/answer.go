package fibermw

import (
	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/headgate/headgate/core"
)

// Answer writes what the template returns, for [WithRefused] and [WithFailed]:
//
//	fibermw.WithRefused(fibermw.Answer(core.JSON))
func Answer(t core.Template) func(*fiber.Ctx, *core.Admission) error {
	return func(c *fiber.Ctx, a *core.Admission) error { return write(c, t(a)) }
}

// Fallback answers every request with one answer that is kept ready, for
// [WithDegraded].
func Fallback(answer core.Answer) fiber.Handler {
	return func(c *fiber.Ctx) error { return write(c, answer) }
}

// problem writes what [Answer] of core.ProblemJSON does.
func problem(c *fiber.Ctx, a *core.Admission) error {
	answer := c.Status(a.Outcome().Status()).Response()
	answer.Header.SetContentType(core.ProblemType)
	return a.WriteProblem(body{answer})
}

// body is the whole body of an answer.
type body struct{ *fasthttp.Response }

// Write replaces the body.
func (b body) Write(p []byte) (int, error) {
	b.SetBody(p)
	return len(p), nil
}

func write(c *fiber.Ctx, answer core.Answer) error {
	header := &c.Context().Response.Header
	for _, h := range answer.Headers {
		header.Set(h.Name, h.Value)
	}
	return c.Status(answer.Status).Send(answer.Body)
}

func setHeaders(c *fiber.Ctx, a *core.Admission) {
	header := &c.Context().Response.Header
	a.EachHeader(func(name string, value []byte) { header.SetCanonical([]byte(name), value) })
}
