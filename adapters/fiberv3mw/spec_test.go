package fiberv3mw_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/headgate/headgate/adapters/fiberv3mw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/adapterspec"
	"github.com/headgate/headgate/limiter"
)

func TestSpecification(t *testing.T) {
	same := []string{"/LOGIN", "/Login", "/login/", "/LOGIN/", "/login//", "/login?a=b"}
	adapterspec.RunHTTP(t, adapterspec.HTTPFramework{
		Package:   "fiberv3mw",
		Serve:     serve,
		Route:     "/login",
		NoRequest: fiberv3mw.Request(nil),
		User: fiberv3mw.Key(func(c fiber.Ctx) (string, bool) {
			return c.Get("X-User"), c.Get("X-Exempt") == ""
		}),
		SameRoute: same,
		SamePath:  same,
		Fails: func(status int) adapterspec.Answer {
			return adapterspec.Text(status, http.StatusText(status))
		},
		Errs:           adapterspec.Text(500, "boom"),
		Panics:         adapterspec.Text(500, "boom"),
		BlindToLeaving: true,
		BlindToStreams: true,
		NoRanges:       true,
	})
}

func serve(t testing.TB, a adapterspec.HTTPApp) string {
	app := fiber.New()
	app.Use(recover.New(recover.Config{EnableStackTrace: a.Recovered != nil,
		StackTraceHandler: func(_ fiber.Ctx, v any) { a.Recovered(v) }}))
	for _, o := range a.Around {
		app.Use(fiberv3mw.New(o.Limiter, configs(o)...))
	}

	limit := fiberv3mw.New(a.Limiter, configs(a)...)
	switch a.Paths {
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
	go func() { done <- app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return l.Addr().String()
}

// configs returns what New is given for the app.
func configs(a adapterspec.HTTPApp) []fiberv3mw.Config {
	var c fiberv3mw.Config
	if a.Skip {
		c.Skip = func(c fiber.Ctx) bool { return adapterspec.Skips(c.Get("X-Skip")) }
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

	// A second Config has no effect, though it would skip everything.
	if a.SecondConfig {
		return []fiberv3mw.Config{c, {Skip: func(fiber.Ctx) bool { return true }}}
	}
	return []fiberv3mw.Config{c}
}

func answer(f func(adapterspec.Exchange, *limiter.Admission) error) func(fiber.Ctx, *limiter.Admission) error {
	return func(c fiber.Ctx, a *limiter.Admission) error { return f(exchange{c}, a) }
}

func handle(h adapterspec.Handler) fiber.Handler {
	return func(c fiber.Ctx) error { return h(exchange{c}) }
}

// exchange answers as Fiber's users do.
type exchange struct{ c fiber.Ctx }

func (x exchange) Context() context.Context { return x.c.Context() }

func (x exchange) Request() core.Request { return fiberv3mw.Request(x.c) }

func (x exchange) Cookie(name string) string { return x.c.Cookies(name) }

func (x exchange) Body() ([]byte, error) { return x.c.Body(), nil }
func (x exchange) Host() string          { return x.c.Host() }

func (x exchange) Reply(status int, body string) error { return x.c.Status(status).SendString(body) }

func (exchange) Fail(status int) error { return fiber.NewError(status) }

func (x exchange) Stream(contentType string, write func(send func(string) error) error) error {
	x.c.Set(fiber.HeaderContentType, contentType)
	x.c.RequestCtx().SetBodyStreamWriter(func(w *bufio.Writer) {
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
	x.c.RequestCtx().Hijack(serve)
	return nil
}

func (exchange) ServeContent(string) error { return nil }
