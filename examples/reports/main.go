// Reports limits how many reports of each user are made at the same time, and
// refuses more with a 429 until one of them is ready:
//
//	go run ./examples/reports
//	for i in 1 2 3; do
//	  curl -i -X POST -H 'X-Token: alice-token' http://127.0.0.1:8080/reports &
//	done; wait
//
// Two of them get a report after three seconds, and the third is refused at once.
// A report holds a lease, which is renewed for as long as it takes and released
// when it is done. If the process dies, the lease expires after the ttl of the
// limit, so a store in Redis keeps nothing locked.
package main

import (
	"log"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/recover"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/fibermw"
	"github.com/headgate/headgate/limiter"
)

func main() {
	log.Fatal(newApp(func() { time.Sleep(3 * time.Second) }).Listen("127.0.0.1:8080"))
}

// newApp returns the service, which calls work for each report.
func newApp(work func()) *fiber.App {
	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Name: "reports", Key: fibermw.Key(user), Limit: core.MustParseLimit("2 concurrent ttl=30s")},
	}})
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Use(recover.New())
	app.Post("/reports", authenticate, fibermw.New(l), func(c *fiber.Ctx) error {
		work()
		name, _ := user(c)
		return c.SendString("the report of " + name + "\n")
	})
	return app
}

// authenticate comes before the limiter, which counts by the user that it finds.
func authenticate(c *fiber.Ctx) error {
	name, ok := map[string]string{"alice-token": "alice", "bob-token": "bob"}[c.Get("X-Token")]
	if !ok {
		return fiber.ErrUnauthorized
	}
	c.Locals("user", name)
	return c.Next()
}

func user(c *fiber.Ctx) (string, bool) {
	name, ok := c.Locals("user").(string)
	return name, ok
}
