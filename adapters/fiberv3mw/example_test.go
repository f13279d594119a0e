package fiberv3mw_test

import (
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/headgate/headgate/adapters/fiberv3mw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

func ExampleNew() {
	app := fiber.New()
	app.Use(fiberv3mw.New(limiter.PerIP("2/1h fixed-window")))
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("hello\n") })
	for range 3 {
		answer, err := app.Test(httptest.NewRequest("GET", "/", nil), fiber.TestConfig{})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(answer.StatusCode, answer.Header.Get("X-RateLimit-Remaining"))
		answer.Body.Close()
	}
	// Output:
	// 200 1
	// 200 0
	// 429 0
}

// The key may be a function of the fiber.Ctx, for example a value that middleware for
// authentication has set.
func ExampleKey() {
	user := fiberv3mw.Key(func(c fiber.Ctx) (string, bool) {
		id, _ := c.Locals("user").(string)
		return id, true // all requests without a user share one count
	})
	rule := limiter.Rule{Name: "user", Key: user, Limit: core.MustParseLimit("5000/1h fixed-window")}
	fmt.Println(rule.Name, rule.Limit)
	// Output: user 5000/1h fixed-window
}

// A server admits 100 requests a minute from each address.
func Example() {
	app := fiber.New()
	app.Use(recover.New(), fiberv3mw.New(limiter.PerIP("100/1m")))
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("hello\n") })
	log.Fatal(app.Listen("127.0.0.1:8080"))
}
