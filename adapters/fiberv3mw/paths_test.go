package fiberv3mw_test

import (
	"testing"

	"github.com/gofiber/fiber/v3"

	"github.com/headgate/headgate/adapters/fiberv3mw"
	"github.com/headgate/headgate/internal/test/pathspec"
	"github.com/headgate/headgate/limiter"
)

// patterns translates patterns of net/http.ServeMux.
var patterns = map[string]string{
	"/{$}": "/", "/about": "/about", "/login": "/login", "/files/{name}": "/files/:name", "/docs/": "/docs/*",
}

func TestPaths(t *testing.T) {
	pathspec.Run(t, pathspec.Router{Name: "Fiber v3",
		Make: func(l *limiter.Limiter, at pathspec.Place, routes []pathspec.Route) func(string) string {
			served, limit, app := "", fiberv3mw.New(l), fiber.New()
			if at == pathspec.Around {
				app.Use(limit)
			}
			for _, r := range routes {
				var handlers []any
				if at == pathspec.Inside {
					handlers = append(handlers, limit)
				}
				handlers = append(handlers, func(fiber.Ctx) error {
					served = r.Name
					return nil
				})
				if r.Pattern == "/" {
					app.Use(handlers...)
				} else {
					app.Get(patterns[r.Pattern], handlers[0], handlers[1:]...)
				}
			}
			return func(target string) string {
				served = ""
				call(app, peer, "GET", target, "Host", "shop.example")
				return served
			}
		}})
}
