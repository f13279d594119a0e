package main

import (
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/recover"

	"github.com/headgate/headgate/examples/internal/serve"
	"github.com/headgate/headgate/fibermw"
	"github.com/headgate/headgate/limiter"
)

func newFiber(l *limiter.Limiter) serve.Server {
	app := fiber.New(fiber.Config{DisableStartupMessage: true, ReadTimeout: 5 * time.Second})
	app.Use(recover.New())
	app.Get("/healthz", func(c *fiber.Ctx) error { return c.SendString("ok") })
	limit := fibermw.New(l)
	app.Get("/", limit, func(c *fiber.Ctx) error { return c.SendString(body(c.UserContext())) })
	app.Get("/hold", limit, func(c *fiber.Ctx) error {
		if !hold(c.UserContext(), c.Query("for")) {
			return c.Status(fiber.StatusBadRequest).SendString(holdUsage)
		}
		return c.SendString(body(c.UserContext()))
	})
	return serve.Fiber(app)
}
