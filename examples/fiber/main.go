// Fiber is the smallest service on Fiber v2 behind a limiter:
//
//	go run ./examples/fiber
//	curl -i http://127.0.0.1:8080/
//
// The sixth curl within some seconds gets a 429.
package main

import (
	"log"

	"github.com/gofiber/fiber/v2"

	"github.com/headgate/headgate/fibermw"
	"github.com/headgate/headgate/limiter"
)

func main() { log.Fatal(app().Listen("127.0.0.1:8080")) }

func app() *fiber.App {
	app := fiber.New()
	app.Use(fibermw.New(limiter.PerIP("5/10s")))
	app.Get("/", func(c *fiber.Ctx) error { return c.SendString("hello\n") })
	return app
}
