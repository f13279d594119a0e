package echov5mw_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate/adapters/echov5mw"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/adapterspec"
	"github.com/headgate/headgate/limiter"
)

func TestSpecification(t *testing.T) {
	fails := func(status int) adapterspec.Answer {
		return adapterspec.Typed(status, "application/json", `{"message":"`+http.StatusText(status)+`"}`+"\n")
	}

	adapterspec.RunHTTP(t, adapterspec.HTTPFramework{
		Package:   "echov5mw",
		Serve:     serve,
		Route:     "/login",
		NoRequest: echov5mw.Request(nil),
		User: echov5mw.Key(func(c *echo.Context) (string, bool) {
			header := c.Request().Header
			return header.Get("X-User"), header.Get("X-Exempt") == ""
		}),
		SameRoute: []string{"/login?a=b"},
		SamePath:  []string{"/%6cogin", "/%6Cogin", "/%6C%6F%67%69%6E", "/login?a=b"},
		Fails:     fails,
		Errs:      fails(500),
		Panics:    fails(500),
	})
}

func serve(t testing.TB, a adapterspec.HTTPApp) string {
	e := echo.New()
	e.Use(recovered(a.Recovered))
	for _, o := range a.Around {
		e.Use(echov5mw.New(o.Limiter, configs(o)...))
	}

	limit := echov5mw.New(a.Limiter, configs(a)...)
	switch a.Paths {
	case adapterspec.Routed:
		e.POST("/login", handle(a.Handler), limit)
	case adapterspec.Login:
		e.Use(limit)
		e.POST("/login", handle(a.Handler))
	default:
		e.Use(limit)
		e.Any("/*", handle(a.Handler))
	}
	return adapterspec.Listen(t, e)
}

// recovered works like Echo's own Recover, and calls seen with the values of panics.
func recovered(seen func(any)) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) (err error) {
			defer func() {
				if v := recover(); v != nil {
					if seen != nil {
						seen(v)
					}
					err = fmt.Errorf("%v", v)
				}
			}()
			return next(c)
		}
	}
}

// configs returns what New is given for the app.
func configs(a adapterspec.HTTPApp) []echov5mw.Config {
	var c echov5mw.Config
	if a.Skip {
		c.Skip = func(c *echo.Context) bool { return adapterspec.Skips(c.Request().Header.Get("X-Skip")) }
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
		return []echov5mw.Config{c, {Skip: func(*echo.Context) bool { return true }}}
	}
	return []echov5mw.Config{c}
}

func answer(f func(adapterspec.Exchange, *limiter.Admission) error) func(*echo.Context, *limiter.Admission) error {
	return func(c *echo.Context, a *limiter.Admission) error { return f(newExchange(c), a) }
}

func handle(h adapterspec.Handler) echo.HandlerFunc {
	return func(c *echo.Context) error { return h(newExchange(c)) }
}

// exchange answers as Echo's users do where that differs from net/http.
type exchange struct {
	adapterspec.Std
	c *echo.Context
}

func newExchange(c *echo.Context) exchange {
	return exchange{adapterspec.Std{W: c.Response(), R: c.Request()}, c}
}

func (x exchange) Request() core.Request { return echov5mw.Request(x.c) }

func (x exchange) Cookie(name string) string {
	c, err := x.c.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

func (x exchange) Reply(status int, body string) error {
	return x.c.Blob(status, adapterspec.Plain, []byte(body))
}

func (exchange) Fail(status int) error { return echo.NewHTTPError(status, "") }
