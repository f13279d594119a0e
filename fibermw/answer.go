package fibermw

import (
	"github.com/gofiber/fiber/v2"

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

func write(c *fiber.Ctx, answer core.Answer) error {
	setHeaders(c, answer.Headers)
	return c.Status(answer.Status).Send(answer.Body)
}

func setHeaders(c *fiber.Ctx, list []core.Header) {
	header := &c.Context().Response.Header
	for _, h := range list {
		header.Set(h.Name, h.Value)
	}
}
