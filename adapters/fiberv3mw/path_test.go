package fiberv3mw_test

import (
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/gofiber/fiber/v3"

	"github.com/headgate/headgate/adapters/fiberv3mw"
	"github.com/headgate/headgate/core"
)

// A policy names the path that clients send, also if a handler has set another since.
func TestPathThatAHandlerHasSet(t *testing.T) {
	var paths []string
	note := func(c fiber.Ctx) error {
		r := fiberv3mw.Request(c).(interface {
			core.Request
			SentPath() string
		})
		paths = append(paths, r.Path()+" "+r.SentPath())
		return nil
	}

	app := fiber.New()
	app.Get("/api/*", func(c fiber.Ctx) error {
		if c.Query("set") != "" {
			c.Path("/login")
		}
		return note(c)
	})

	// The last two have set another path: the policy still sees the one that was sent.
	for _, target := range []string{"/api/login?a=b", "/api/login", "/api/login?set=1", "/api/lo%67in?set=1"} {
		if _, err := app.Test(httptest.NewRequest("GET", target, nil)); err != nil {
			t.Fatal(err)
		}
	}

	if want := []string{"/api/login ", "/api/login ", "/login /api/login", "/login /api/login"}; !slices.Equal(paths,
		want) {
		t.Errorf("%q, want %q", paths, want)
	}
}
