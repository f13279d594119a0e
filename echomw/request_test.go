package echomw_test

import (
	"slices"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/echomw"
	"github.com/headgate/headgate/limiter"
)

func TestRoute(t *testing.T) {
	var routes []string
	// Each of these middlewares stands at another place and notes the route that it knows there.
	limit := func() echo.MiddlewareFunc {
		return echomw.New(limited(t, "1000/1m", func(r *limiter.Rule) {
			r.Key = func(r core.Request) (string, bool) {
				routes = append(routes, r.Route())
				return "", true
			}
		}))
	}

	e := echo.New()
	// Before the router no route is known.
	e.Pre(limit())
	e.Use(limit())
	e.Group("/api", limit()).GET("/users/:id", func(c echo.Context) error { return c.NoContent(204) }, limit())

	call(e, "/api/users/7")
	if want := []string{"", "/api/users/:id", "/api/users/:id", "/api/users/:id"}; !slices.Equal(routes, want) {
		t.Errorf("%q, want %q", routes, want)
	}

	// Where no route matches there is no name, inside the router either.
	routes = nil
	call(e, "/elsewhere")
	if want := []string{"", ""}; !slices.Equal(routes, want) {
		t.Errorf("%q, want %q", routes, want)
	}
}
