package ginmw_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/ginmw"
	"github.com/headgate/headgate/internal/test/adapterspec"
	"github.com/headgate/headgate/limiter"
)

func TestSpecification(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	adapterspec.RunHTTP(t, adapterspec.HTTPFramework{
		Package:   "ginmw",
		Serve:     serve,
		Route:     "/login",
		NoRequest: ginmw.Request(nil),
		User: ginmw.Key(func(c *gin.Context) (string, bool) {
			return c.GetHeader("X-User"), c.GetHeader("X-Exempt") == ""
		}),
		// Gin routes by the path that is unescaped.
		SameRoute: []string{"/%6cogin", "/%6Cogin", "/%6C%6F%67%69%6E", "/login?a=b"},
		SamePath:  []string{"/%6cogin", "/%6Cogin", "/%6C%6F%67%69%6E", "/login?a=b"},
		Fails: func(status int) adapterspec.Answer {
			return adapterspec.Typed(status, "application/json; charset=utf-8",
				`{"error":"`+http.StatusText(status)+`"}`)
		},
		Errs:   adapterspec.Bare(500),
		Panics: adapterspec.Bare(500),
	})
}

func serve(t testing.TB, a adapterspec.HTTPApp) string {
	e := gin.New()
	e.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, v any) {
		if a.Recovered != nil {
			a.Recovered(v)
		}
		c.AbortWithStatus(http.StatusInternalServerError)
	}))

	for _, o := range a.Around {
		e.Use(ginmw.New(o.Limiter, configs(o)...))
	}

	limit := ginmw.New(a.Limiter, configs(a)...)
	switch a.Paths {
	// As the handler of one route, for a group, and for all.
	case adapterspec.Routed:
		e.POST("/login", limit, handle(a.Handler))
	case adapterspec.Login:
		e.Use(limit).POST("/login", handle(a.Handler))
	default:
		e.Use(limit)
		e.Any("/*path", handle(a.Handler))
	}

	return adapterspec.Listen(t, e)
}

// configs returns what New is given for the app.
func configs(a adapterspec.HTTPApp) []ginmw.Config {
	var c ginmw.Config
	if a.Skip {
		c.Skip = func(c *gin.Context) bool { return adapterspec.Skips(c.GetHeader("X-Skip")) }
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
		return []ginmw.Config{c, {Skip: func(*gin.Context) bool { return true }}}
	}
	return []ginmw.Config{c}
}

func answer(f func(adapterspec.Exchange, *limiter.Admission) error) func(*gin.Context, *limiter.Admission) {
	return func(c *gin.Context, a *limiter.Admission) { report(c, f(newExchange(c), a)) }
}

func handle(h adapterspec.Handler) gin.HandlerFunc {
	return func(c *gin.Context) { report(c, h(newExchange(c))) }
}

func report(c *gin.Context, err error) {
	if err != nil {
		_ = c.AbortWithError(http.StatusInternalServerError, err)
	}
}

// exchange answers as Gin's users do where that differs from net/http.
type exchange struct {
	adapterspec.Std
	c *gin.Context
}

func newExchange(c *gin.Context) exchange {
	return exchange{adapterspec.Std{W: c.Writer, R: c.Request}, c}
}

func (x exchange) Request() core.Request { return ginmw.Request(x.c) }

func (x exchange) Cookie(name string) string {
	value, _ := x.c.Cookie(name)
	return value
}

func (x exchange) Reply(status int, body string) error {
	x.c.String(status, "%s", body)
	return nil
}

func (x exchange) Fail(status int) error {
	x.c.AbortWithStatusJSON(status, gin.H{"error": http.StatusText(status)})
	return nil
}
