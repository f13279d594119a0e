// Search finds products. Over the limit of an address it answers with what it has found
// before, and searches no more:
//
//	go -C adapters/fiberv3mw run ./examples/search
//	for i in 1 2 3 4; do curl 'http://127.0.0.1:8080/search?for=tea'; done
//
// The function that searches gets the fiber.Ctx as its context, and knows nothing else of
// Fiber. It copies the words that it keeps, because Fiber uses the memory of a request
// again.
package main

import (
	"context"
	"log"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/headgate/headgate/adapters/fiberv3mw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

func main() {
	log.Fatal(newApp(func(words string) string { return "all about " + words + "\n" }).Listen("127.0.0.1:8080"))
}

// newApp returns the service, which calls find for each search.
func newApp(find func(words string) string) *fiber.App {
	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{
			Name: "searches", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("30/1h burst=3"),
			OnLimit: limiter.Degrade,
		},
	}})
	p := &products{find: find, found: map[string]string{}}
	app := fiber.New()
	app.Use(recover.New(), fiberv3mw.New(l, fiberv3mw.Config{Skip: fiber.Ctx.IsPreflight}))
	app.Get("/search", func(c fiber.Ctx) error { return c.SendString(p.search(c, c.Query("for"))) })
	return app
}

// products are what can be found. Up to 1000 searches are kept.
type products struct {
	find  func(words string) string
	mu    sync.Mutex
	found map[string]string // Guarded by mu.
}

func (p *products) search(ctx context.Context, words string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if limiter.Degraded(ctx) {
		return p.found[words]
	}

	text := p.find(words)
	if len(p.found) < 1000 {
		p.found[strings.Clone(words)] = text
	}
	return text
}
