package fibermw_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v2"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/fibermw"
	"github.com/headgate/headgate/internal/test/gatetest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/findings"
)

// seeing returns an app with a rule that calls see for each request, and a function
// that returns the last result.
func seeing(t *testing.T, c fiber.Config, see func(core.Request) string) (*fiber.App, func() string) {
	var seen string
	// No rule applies, so that the request passes and only the look counts.
	l := newLimiter(t, newStore(), "1000/1m", func(r *limiter.Rule) {
		r.Key = func(r core.Request) (string, bool) {
			seen = see(r)
			return "", true
		}
	})

	app := newApp(c)
	app.Use(fibermw.New(l))
	return app, func() string { return seen }
}

func TestRemoteAddr(t *testing.T) {
	rows := []struct {
		peer net.Addr
		want string
	}{
		// Each text is that of the address itself, as net/http has it.
		{peer, "192.0.2.1:1234"},
		{&net.TCPAddr{IP: net.IP{192, 0, 2, 1}, Port: 80}, "192.0.2.1:80"},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 80}, "[2001:db8::1]:80"},
		{&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0", Port: 80}, "[fe80::1%eth0]:80"},
		{&net.UnixAddr{Net: "unix", Name: "@"}, "@"},
	}

	// Fiber would read the header for its own IP. The peer is not to be taken from it.
	app, seen := seeing(t, fiber.Config{ProxyHeader: "X-Forwarded-For"}, core.Request.RemoteAddr)
	for _, row := range rows {
		call(app, row.peer, "GET", "/", "X-Forwarded-For", "203.0.113.1")
		if seen() != row.want || row.want != row.peer.String() {
			t.Errorf("%s, want %s", seen(), row.want)
		}
	}
}

// The context of a request is the one that a handler has set, and to ask for it changes nothing.
func TestContext(t *testing.T) {
	type key struct{}
	own := context.WithValue(context.Background(), key{}, "own")
	for name, set := range map[string]func(*fiber.Ctx){
		"none":    func(*fiber.Ctx) {},
		"a value": func(c *fiber.Ctx) { c.Locals("a", "b") },
		"own":     func(c *fiber.Ctx) { c.SetUserContext(own) },
	} {
		app := newApp(fiber.Config{})
		app.Use(func(c *fiber.Ctx) error {
			set(c)
			got := fibermw.Request(c).Context()
			if (got == own) != (name == "own") || (got == context.Background()) == (name == "own") {
				t.Errorf("%s: the context is %v", name, got)
			}
			if name == "none" {
				c.Context().VisitUserValuesAll(func(k, v any) { t.Errorf("%v is left: %v", k, v) })
			}
			return nil
		})
		call(app, peer, "GET", "/")
	}
}

func TestPath(t *testing.T) {
	loose, strict := fiber.Config{}, fiber.Config{CaseSensitive: true, StrictRouting: true}
	unescaping := fiber.Config{UnescapePath: true}
	rows := []struct {
		config     fiber.Config
		path, want string
	}{
		// Fiber ignores case and a slash at the end, unless it is told otherwise. So what meets one
		// route is one path.
		{loose, "/", "/"}, {loose, "/login", "/login"}, {loose, "/LOGIN", "/login"}, {loose, "/Login//", "/login"},
		{loose, "/%6CoGIN/", "/%6cogin"}, {loose, "/%C3%84", "/%c3%84"}, {loose, "/a/B/?x=Y", "/a/b"},
		{strict, "/LOGIN/", "/LOGIN/"}, {strict, "/login", "/login"},
		{unescaping, "/%4cogin/", "/login"}, {unescaping, "/%C3%84", "/\u00c4"},
		{fiber.Config{CaseSensitive: true}, "/LOGIN/", "/LOGIN"},
		{fiber.Config{StrictRouting: true}, "/LOGIN/", "/login/"},
	}

	for _, row := range rows {
		app, seen := seeing(t, row.config, core.Request.Path)
		call(app, peer, "GET", row.path)
		if seen() != row.want {
			t.Errorf("%s: %s, want %s", row.path, seen(), row.want)
		}
	}
}

func TestRoute(t *testing.T) {
	var routes []string
	// Each of these middlewares stands at another place and notes the route that it knows there.
	limit := func() fiber.Handler {
		return fibermw.New(newLimiter(t, newStore(), "1000/1m", func(r *limiter.Rule) {
			r.Key = func(r core.Request) (string, bool) {
				routes = append(routes, r.Route())
				return "", true
			}
		}))
	}

	app := newApp(fiber.Config{})
	app.Use(limit())
	app.Group("/api", limit()).Get("/users/:id", limit(), func(c *fiber.Ctx) error { return c.SendString("ok") })

	call(app, peer, "GET", "/API/users/7/")
	if want := []string{"/", "/api", "/api/users/:id"}; !slices.Equal(routes, want) {
		t.Errorf("%q, want %q", routes, want)
	}
}

func TestHeader(t *testing.T) {
	app, seen := seeing(t, fiber.Config{}, func(r core.Request) string {
		return fmt.Sprintf("%q %q %q %q", r.Header("X-A"), r.Header("X-B"), r.Header("Host"), r.Header("Cookie"))
	})
	call(app, peer, "GET", "http://A.example/", "Host", "b.example", "x-a", "1", "X-A", "2, 3", "X-A", "",
		"Cookie", "a=b; c=d")
	if want := `["1" "2, 3" ""] [] ["a.example"] ["a=b; c=d"]`; seen() != want {
		t.Errorf("%s, want %s", seen(), want)
	}
}

// The handler changes the request in the memory that Fiber's strings share.
func TestRefundKeyAfterRequestChanged(t *testing.T) {
	loose, strict := fiber.Config{}, fiber.Config{CaseSensitive: true, StrictRouting: true}
	path := func(r core.Request) (string, bool) { return r.Path(), true }

	rows := map[string]struct {
		config fiber.Config
		key    core.KeyFunc
		want   string
	}{
		// Keys that Fiber's buffers back, by every way to them.
		"a header":      {loose, func(r core.Request) (string, bool) { return r.Header("X-User")[0], true }, "alice"},
		"the path":      {loose, path, "/alice"},
		"a strict path": {strict, path, "/alice"},
		"the method":    {loose, func(r core.Request) (string, bool) { return r.Method(), true }, "PATCH"},
		"a native key": {loose, fibermw.Key(func(c *fiber.Ctx) (string, bool) { return c.Get("X-User"), true }),
			"alice"},
		"a native path": {loose, fibermw.Key(func(c *fiber.Ctx) (string, bool) { return c.Path(), true }), "/alice"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			s := newStore()
			// The unit is refunded after the handler, by the key from before.
			l := newLimiter(t, s, "5/1m", func(r *limiter.Rule) {
				r.Key = row.key
				r.RefundIf = func(int) bool { return true }
			})

			app := newApp(row.config)
			// Each new text is as long as the old one, or fits into its place.
			app.Use(fibermw.New(l), func(c *fiber.Ctx) error {
				c.Path("/bobby")
				c.Request().Header.Set("X-User", "bobby")
				c.Request().Header.SetMethod("TRACE")
				return nil
			})

			call(app, peer, "PATCH", "/alice", "X-User", "alice")
			if got := s.release(t); got != row.want {
				t.Errorf("%q, want %q", got, row.want)
			}
		})
	}
}

func TestMethodAddedToFiber(t *testing.T) {
	app, seen := seeing(t, fiber.Config{RequestMethods: append([]string{"PURGE"}, fiber.DefaultMethods...)},
		core.Request.Method)
	call(app, peer, "PURGE", "/")
	if seen() != "PURGE" {
		t.Errorf("%q", seen())
	}
}

func TestRestartRoutingCountsOnce(t *testing.T) {
	var log strings.Builder
	l := limiter.MustNew(limiter.Config{Store: newStore(), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Rules: []limiter.Rule{gatetest.Rule("5/1m")}})

	app := newApp(fiber.Config{})
	app.Use(fibermw.New(l))
	// The request passes the middleware a second time, under its new path.
	app.Get("/old", func(c *fiber.Ctx) error {
		c.Path("/new")
		return c.RestartRouting()
	})
	app.Get("/new", func(c *fiber.Ctx) error { return c.SendString("ok") })

	if got := call(app, peer, "GET", "/old"); string(got.Response.Body()) != "ok" {
		t.Errorf("%s", got.Response.Body())
	}

	// It was counted once, and the log says that it came twice.
	gatetest.WantLeft(t, l, 4)
	if !strings.Contains(log.String(), "code="+findings.Twice) {
		t.Errorf("the log is %q", log.String())
	}
}

// Fiber does not recover from a panic.
func TestAnswerThatPanicsIsThatOfTheLimiter(t *testing.T) {
	var log strings.Builder
	l := limiter.MustNew(limiter.Config{Store: newStore(), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Rules: []limiter.Rule{gatetest.Rule("1/1m")}})

	app := newApp(fiber.Config{})
	// A panic in the middle of an answer must not leave half of it.
	app.Use(fibermw.New(l, fibermw.Config{Refused: func(c *fiber.Ctx, _ *limiter.Admission) error {
		_ = c.Status(418).SendString("half of an answer")
		panic("of the program")
	}}))

	app.Get("/", func(c *fiber.Ctx) error { return c.SendString("ok") })
	// The first request spends the unit.
	call(app, peer, "GET", "/")
	answer := &call(app, peer, "GET", "/").Response

	after := string(answer.Header.Peek("Retry-After"))
	if answer.StatusCode() != 429 || strings.Contains(string(answer.Body()), "half") || after != "60" {
		t.Errorf("%d %s", answer.StatusCode(), answer.Body())
	}

	if !strings.Contains(log.String(), "Config.Refused") {
		t.Errorf("the log is %q", log.String())
	}
}
