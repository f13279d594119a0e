// Reports limits how many reports of each user are made at the same time, and
// refuses more with a 429 until one of them is ready:
//
//	go run ./examples/reports -takes 10s
//	for i in 1 2 3; do curl -i -X POST -H 'Authorization: Bearer alice-token' http://127.0.0.1:8080/reports & done; wait
//
// Two of them get a report after ten seconds, and the third is refused at once.
// A report holds a lease, which is renewed for as long as it takes and released
// when it is done. If the process dies, the lease expires after the ttl of the
// limit, so with -store redis://… nothing stays locked.
package main

import (
	"flag"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/recover"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/examples/internal/serve"
	"github.com/headgate/headgate/examples/internal/who"
	"github.com/headgate/headgate/fibermw"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

func main() { serve.Main("reports", &program{work: time.Sleep}) }

type program struct {
	limit core.Limit
	takes time.Duration
	work  func(time.Duration) // the slow part
}

func (p *program) Flags(f *flag.FlagSet) {
	f.TextVar(&p.limit, "limit", core.MustParseLimit("2 concurrent ttl=30s"), "reports at once for a user")
	f.DurationVar(&p.takes, "takes", 3*time.Second, "how long a report takes")
}

func (p *program) Open(store core.Store) (*serve.App, error) {
	l, err := limiter.New(limiter.Config{
		Store:   store,
		Rules:   []limiter.Rule{{Name: "reports", Key: keyfuncs.UserID(who.FromContext), Limit: p.limit}},
		OnError: serve.LogError,
	})
	if err != nil {
		return nil, err
	}
	app := fiber.New(fiber.Config{DisableStartupMessage: true, ReadTimeout: 5 * time.Second})
	app.Use(recover.New())
	app.Post("/reports", authenticate, fibermw.New(l), func(c *fiber.Ctx) error {
		p.work(p.takes)
		user, _ := who.FromContext(c.UserContext())
		return c.SendString("the report of " + user + "\n")
	})
	return &serve.App{Limiter: l, Server: serve.Fiber(app)}, nil
}

// authenticate comes before the limiter, which counts by the user that it finds.
func authenticate(c *fiber.Ctx) error {
	user, ok := who.Is(c.Get(fiber.HeaderAuthorization))
	if !ok {
		return fiber.ErrUnauthorized
	}
	c.SetUserContext(who.NewContext(c.UserContext(), user))
	return c.Next()
}
