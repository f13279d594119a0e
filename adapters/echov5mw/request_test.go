package echov5mw_test

import (
	"slices"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate/adapters/echov5mw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

func TestRoute(t *testing.T) {
	var routes []string
	limit := func() echo.MiddlewareFunc {
		return echov5mw.New(limited(t, "1000/1m", func(r *limiter.Rule) {
			r.Key = func(r core.Request) (string, bool) {
				routes = append(routes, r.Route())
				return "", true
			}
		}))
	}

	e := echo.New()

	// Before routing, after it, in a group and at a route: only the first knows none.
	e.Pre(limit())
	e.Use(limit())
	e.Group("/api", limit()).GET("/users/:id", func(c *echo.Context) error { return c.NoContent(204) }, limit())
	call(e, "/api/users/7")

	if want := []string{"", "/api/users/:id", "/api/users/:id", "/api/users/:id"}; !slices.Equal(routes, want) {
		t.Errorf("%q, want %q", routes, want)
	}

	// A path without a route has none, wherever the limiter is asked.
	routes = nil
	call(e, "/elsewhere")

	if want := []string{"", ""}; !slices.Equal(routes, want) {
		t.Errorf("%q, want %q", routes, want)
	}
}

// Package policy asks for the path as the client encoded it.
func TestRawPath(t *testing.T) {
	for target, want := range map[string]string{"/a%2Fb": "/a%2Fb", "/a/b": ""} {
		var got string
		e := echo.New()
		e.GET("/*", func(c *echo.Context) error {
			got = echov5mw.Request(c).(interface{ RawPath() string }).RawPath()
			return nil
		})
		if call(e, target); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
}
