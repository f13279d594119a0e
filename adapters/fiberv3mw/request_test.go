package fiberv3mw_test

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"

	"github.com/headgate/headgate/adapters/fiberv3mw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/gatetest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/findings"
	"github.com/headgate/headgate/policy"
)

// seeing returns an app with a rule that calls see for each request, and a function
// that returns the last result.
func seeing(t *testing.T, c fiber.Config, see func(core.Request) string) (*fiber.App, func() string) {
	var seen string
	l := newLimiter(t, newStore(), "1000/1m", func(r *limiter.Rule) {
		r.Key = func(r core.Request) (string, bool) {
			seen = see(r)
			return "", true
		}
	})
	app := fiber.New(c)
	app.Use(fiberv3mw.New(l))
	return app, func() string { return seen }
}

func TestRemoteAddr(t *testing.T) {
	// The address is that of the connection, whatever Fiber is told about proxies.
	rows := []struct {
		peer net.Addr
		want string
	}{
		{peer, "192.0.2.1:1234"},
		{&net.TCPAddr{IP: net.IP{192, 0, 2, 1}, Port: 80}, "192.0.2.1:80"},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 80}, "[2001:db8::1]:80"},
		{&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0", Port: 80}, "[fe80::1%eth0]:80"},
		{&net.UnixAddr{Net: "unix", Name: "@"}, "@"},
	}

	app, seen := seeing(t, fiber.Config{ProxyHeader: "X-Forwarded-For"}, core.Request.RemoteAddr)
	for _, row := range rows {
		call(app, row.peer, "GET", "/", "X-Forwarded-For", "203.0.113.1")
		if seen() != row.want || row.want != row.peer.String() {
			t.Errorf("%s, want %s", seen(), row.want)
		}
	}
}

func TestPath(t *testing.T) {
	loose, strict := fiber.Config{}, fiber.Config{CaseSensitive: true, StrictRouting: true}
	unescaping := fiber.Config{UnescapePath: true}
	rows := []struct {
		config     fiber.Config
		path, want string
	}{
		// As Fiber finds its route: without case and trailing slash by default, and with an escape
		// only if it is told to read them.
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
	limit := func() fiber.Handler {
		return fiberv3mw.New(newLimiter(t, newStore(), "1000/1m", func(r *limiter.Rule) {
			r.Key = func(r core.Request) (string, bool) {
				routes = append(routes, r.Route())
				return "", true
			}
		}))
	}

	app := fiber.New(fiber.Config{})

	// In an app, in a group and at a route: each sees how far Fiber has found its way.
	app.Use(limit())
	app.Group("/api", limit()).Get("/users/:id", limit(), func(c fiber.Ctx) error { return c.SendString("ok") })

	call(app, peer, "GET", "/API/users/7/")
	if want := []string{"/", "/api", "/api/users/:id"}; !slices.Equal(routes, want) {
		t.Errorf("%q, want %q", routes, want)
	}
}

func TestHeader(t *testing.T) {
	app, seen := seeing(t, fiber.Config{}, func(r core.Request) string {
		return fmt.Sprintf("%q %q %q %q", r.Header("X-A"), r.Header("X-B"), r.Header("Host"), r.Header("Cookie"))
	})
	call(app, peer, "GET", "http://A.example/", "Host", "b.example", "x-a", "1", "X-A", "2, 3", "X-A", "", "Cookie",
		"a=b; c=d")
	if want := `["1" "2, 3" ""] [] ["a.example"] ["a=b; c=d"]`; seen() != want {
		t.Errorf("%s, want %s", seen(), want)
	}
}

// A handler reads the host that a proxy names, if Fiber trusts the proxy.
func TestHostOfTrustedProxy(t *testing.T) {
	for _, trust := range []bool{true, false} {
		app, seen := seeing(t,
			fiber.Config{TrustProxy: trust, TrustProxyConfig: fiber.TrustProxyConfig{Proxies: []string{"192.0.2.1"}}},
			func(r core.Request) string { return strings.Join(r.Header("Host"), " ") })
		want := map[bool]string{true: "a.example b.example", false: "a.example"}[trust]
		if call(app, peer, "GET", "http://a.example/", "X-Forwarded-Host", "b.example"); seen() != want {
			t.Errorf("trusted %t: %q, want %q", trust, seen(), want)
		}
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
		// Each key is text that Fiber keeps in the memory of the request.
		"a header":      {loose, func(r core.Request) (string, bool) { return r.Header("X-User")[0], true }, "alice"},
		"the path":      {loose, path, "/alice"},
		"a strict path": {strict, path, "/alice"},
		"the method":    {loose, func(r core.Request) (string, bool) { return r.Method(), true }, "PATCH"},
		"a native key": {loose, fiberv3mw.Key(func(c fiber.Ctx) (string, bool) { return c.Get("X-User"), true }),
			"alice"},
		"a native path": {loose, fiberv3mw.Key(func(c fiber.Ctx) (string, bool) { return c.Path(), true }), "/alice"},
	}

	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			s := newStore()
			l := newLimiter(t, s, "5/1m", func(r *limiter.Rule) {
				r.Key = row.key
				r.RefundIf = func(int) bool { return true }
			})

			// The handler overwrites as much as the key has, so that a key that was not copied
			// becomes "bobby".
			app := fiber.New(row.config)
			app.Use(fiberv3mw.New(l), func(c fiber.Ctx) error {
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

	app := fiber.New(fiber.Config{})
	app.Use(fiberv3mw.New(l))
	app.Get("/old", func(c fiber.Ctx) error {
		c.Path("/new")
		return c.RestartRouting()
	})
	app.Get("/new", func(c fiber.Ctx) error { return c.SendString("ok") })

	// The second round through the limiter is not counted, and the log says that it is in the way
	// twice.
	if got := call(app, peer, "GET", "/old"); string(got.Response.Body()) != "ok" {
		t.Errorf("%s", got.Response.Body())
	}

	gatetest.WantLeft(t, l, 4)
	if !strings.Contains(log.String(), "code="+findings.Twice) {
		t.Errorf("the log is %q", log.String())
	}
}

// The route of a group's middleware is the prefix of the group, which is no path that the
// request has asked for.
func TestPolicyOfAPrefixIsNotThatOfTheGroup(t *testing.T) {
	// The policy is for the page /docs alone, and not for what is below it.
	compiled, err := policy.Compile("shop",
		[]policy.Policy{{Name: "docs", Apps: []string{"shop"}, Limit: core.MustParseLimit("1/1h"),
			Key: "global", Match: policy.Match{Path: "/docs"}}}, policy.Bindings{})
	if err != nil {
		t.Fatal(err)
	}

	app := fiber.New()
	docs := app.Group("/docs",
		fiberv3mw.New(gatetest.Limiter(t, limiter.Config{Store: newStore(), Rules: compiled.Rules()})))
	docs.Get("/", func(c fiber.Ctx) error { return nil })
	docs.Get("/a", func(c fiber.Ctx) error { return nil })

	for i, row := range []struct {
		path string
		want int
	}{{"/docs/a", 200}, {"/docs/a", 200}, {"/docs", 200}, {"/docs", 429}, {"/docs/a", 200}} {
		if got := call(app, peer, "GET", row.path).Response.StatusCode(); got != row.want {
			t.Errorf("request %d, %s: %d, want %d", i, row.path, got, row.want)
		}
	}
}

// Fiber does not recover from a panic.
func TestAnswerThatPanicsIsThatOfTheLimiter(t *testing.T) {
	var log strings.Builder
	l := limiter.MustNew(limiter.Config{Store: newStore(), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Rules: []limiter.Rule{gatetest.Rule("1/1m")}})

	app := fiber.New()
	app.Use(fiberv3mw.New(l, fiberv3mw.Config{Refused: func(c fiber.Ctx, _ *limiter.Admission) error {
		_ = c.Status(418).SendString("half of an answer")
		panic("of the program")
	}}))
	app.Get("/", func(c fiber.Ctx) error { return c.SendString("ok") })

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
