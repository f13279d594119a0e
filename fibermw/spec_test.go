package fibermw_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/recover"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/fibermw"
	"github.com/headgate/headgate/internal/test/adapterspec"
	"github.com/headgate/headgate/limiter"
)

func TestSpecification(t *testing.T) {
	same := []string{"/LOGIN", "/Login", "/login/", "/LOGIN/", "/login//", "/login?a=b"}

	adapterspec.RunHTTP(t, adapterspec.HTTPFramework{
		Package:   "fibermw",
		Serve:     serve,
		Route:     "/login",
		NoRequest: fibermw.Request(nil),
		User: fibermw.Key(func(c *fiber.Ctx) (string, bool) {
			return c.Get("X-User"), c.Get("X-Exempt") == ""
		}),
		// Fiber ignores case and slashes at the end of a path.
		SameRoute: same,
		SamePath:  same,
		Fails:     func(status int) adapterspec.Answer { return adapterspec.Text(status, http.StatusText(status)) },
		Errs:      adapterspec.Text(500, "boom"),
		Panics:    adapterspec.Text(500, "boom"),
		// fasthttp learns of a client that left only when it writes.
		BlindToLeaving: true,
		BlindToStreams: true,
		NoRanges:       true,
	})
}

func serve(t testing.TB, a adapterspec.HTTPApp) string {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Use(recover.New(recover.Config{EnableStackTrace: a.Recovered != nil,
		StackTraceHandler: func(_ *fiber.Ctx, v any) { a.Recovered(v) }}))

	for _, o := range a.Around {
		app.Use(fibermw.New(o.Limiter, configs(o)...))
	}

	limit := fibermw.New(a.Limiter, configs(a)...)
	switch a.Paths {
	// For one route, for a group of routes, and for all.
	case adapterspec.Routed:
		app.Post("/login", limit, handle(a.Handler))
	case adapterspec.Login:
		app.Use(limit).Post("/login", handle(a.Handler))
	default:
		app.Use(limit, handle(a.Handler))
	}

	return listen(t, app)
}

// listen serves the app on loopback until the test ends.
func listen(t testing.TB, app *fiber.App) string {
	t.Helper()
	l := adapterspec.Listener(t)
	done := make(chan error, 1)
	go func() { done <- app.Listener(l) }()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return l.Addr().String()
}

// configs returns what New is given for the app.
func configs(a adapterspec.HTTPApp) []fibermw.Config {
	var c fibermw.Config
	if a.Skip {
		c.Skip = func(c *fiber.Ctx) bool { return adapterspec.Skips(c.Get("X-Skip")) }
	}
	if a.Refused != nil {
		c.Refused = answer(a.Refused)
	}
	if a.Failed != nil {
		c.Failed = answer(a.Failed)
	}
	if a.Degraded != nil {
		c.Degraded = handle(a.Degraded)
	}
	// A second Config is a mistake, and must not take effect.
	if a.SecondConfig {
		return []fibermw.Config{c, {Skip: func(*fiber.Ctx) bool { return true }}}
	}
	return []fibermw.Config{c}
}

func answer(f func(adapterspec.Exchange, *limiter.Admission) error) func(*fiber.Ctx, *limiter.Admission) error {
	return func(c *fiber.Ctx, a *limiter.Admission) error { return f(exchange{c}, a) }
}

func handle(h adapterspec.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error { return h(exchange{c}) }
}

// exchange answers as Fiber's users do.
type exchange struct{ c *fiber.Ctx }

func (x exchange) Context() context.Context { return x.c.UserContext() }

func (x exchange) Request() core.Request { return fibermw.Request(x.c) }

func (x exchange) Cookie(name string) string { return x.c.Cookies(name) }

func (x exchange) Body() ([]byte, error) { return x.c.Body(), nil }
func (x exchange) Host() string          { return x.c.Hostname() }

func (x exchange) Reply(status int, body string) error { return x.c.Status(status).SendString(body) }

func (exchange) Fail(status int) error { return fiber.NewError(status) }

func (x exchange) Stream(contentType string, write func(send func(string) error) error) error {
	x.c.Set(fiber.HeaderContentType, contentType)
	x.c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
		_ = write(func(text string) error {
			if _, err := w.WriteString(text); err != nil {
				return err
			}
			return w.Flush()
		})
	})
	return nil
}

func (x exchange) Hijack(serve func(net.Conn)) error {
	x.c.Status(fiber.StatusSwitchingProtocols)
	x.c.Set(fiber.HeaderConnection, "Upgrade")
	x.c.Set(fiber.HeaderUpgrade, "echo")
	x.c.Context().Hijack(serve)
	return nil
}

func (exchange) ServeContent(string) error { return nil }
