package echov5mw_test

import (
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate/adapters/echov5mw"
	"github.com/headgate/headgate/internal/test/pathspec"
	"github.com/headgate/headgate/limiter"
)

// patterns translates patterns of net/http.ServeMux.
var patterns = map[string]string{
	"/{$}": "/", "/about": "/about", "/login": "/login", "/files/{name}": "/files/:name", "/docs/": "/docs/*",
	"/": "/*",
}

func TestPaths(t *testing.T) {
	pathspec.Run(t, pathspec.Router{Name: "Echo v5", Rest: true,
		Make: func(l *limiter.Limiter, at pathspec.Place, routes []pathspec.Route) func(string) string {
			served, limit, e := "", echov5mw.New(l), echo.New()
			if at == pathspec.Around {
				e.Use(limit)
			}

			for _, r := range routes {
				h := func(*echo.Context) error {
					served = r.Name
					return nil
				}
				if at == pathspec.Inside {
					e.GET(patterns[r.Pattern], h, limit)
				} else {
					e.GET(patterns[r.Pattern], h)
				}
			}

			return func(target string) string {
				served = ""
				call(e, target)
				return served
			}
		}})
}
