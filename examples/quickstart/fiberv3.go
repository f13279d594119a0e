package main

import (
	"context"
	"net"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/headgate/headgate/fiberv3mw"
	"github.com/headgate/headgate/limiter"
)

type fiberV3Server struct{ app *fiber.App }

func (s fiberV3Server) Serve(l net.Listener) error {
	return s.app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true})
}

func (s fiberV3Server) Shutdown(ctx context.Context) error { return s.app.ShutdownWithContext(ctx) }

func newFiberV3(l *limiter.Limiter) *fiber.App {
	app := fiber.New(fiber.Config{ReadTimeout: 5 * time.Second})
	app.Use(recover.New())
	limited := fiberv3mw.New(l)
	answer := func(c fiber.Ctx, span string) error {
		status, text := hold(c, span)
		return c.Status(status).SendString(text)
	}
	app.Get("/", limited, func(c fiber.Ctx) error { return answer(c, "0s") })
	app.Get("/hold", limited, func(c fiber.Ctx) error { return answer(c, c.Query("for")) })
	app.Get("/healthz", func(c fiber.Ctx) error { return c.SendString("ok") })
	return app
}
