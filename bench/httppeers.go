package main

import (
	"net/http"
	"time"

	ginlimit "github.com/JGLTechnologies/gin-rate-limit"
	"github.com/didip/tollbooth/v7"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/httprate"
	"github.com/gofiber/fiber/v2"
	fiberlimiter "github.com/gofiber/fiber/v2/middleware/limiter"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	throttledmem "github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ululegin "github.com/ulule/limiter/v3/drivers/middleware/gin"
	ululestd "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululemem "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/echomw"
	"github.com/headgate/headgate/fibermw"
	"github.com/headgate/headgate/ginmw"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/store/memstore"
)

// bare is a framework with no limiter at all: the floor.
const bare = "no limiter"

// httpPeer is a middleware. Every one counts by the address of the peer and
// sends its headers, as far as it has any, under one rule.
type httpPeer struct {
	name string
	open func() (serve, error)
}

// frameworks are the four, each with its peers.
var frameworks = []struct {
	name  string
	peers []httpPeer
}{
	{"net/http", []httpPeer{
		{bare, std(func(h http.Handler) (http.Handler, error) { return h, nil })},
		{ours, std(stdOurs)},
		{"httprate", std(func(h http.Handler) (http.Handler, error) {
			return httprate.LimitByIP(wide.burst, wide.period)(h), nil
		})},
		{"ulule stdlib", std(stdUlule)},
		{goLimits + " httplimit", std(stdGoLimiter)},
		{"throttled", std(stdThrottled)},
		{"tollbooth", std(stdTollbooth)},
	}},
	{"Gin", []httpPeer{
		{bare, ginApp(func() (gin.HandlerFunc, error) { return func(c *gin.Context) { c.Next() }, nil })},
		{ours, ginApp(ginOurs)},
		{"ulule gin", ginApp(func() (gin.HandlerFunc, error) { return ululegin.NewMiddleware(ulule()), nil })},
		{"gin-rate-limit", ginApp(ginLimit)},
	}},
	{"Echo", []httpPeer{
		{bare, echoApp(func() (echo.MiddlewareFunc, error) {
			return func(next echo.HandlerFunc) echo.HandlerFunc { return next }, nil
		})},
		{ours, echoApp(echoOurs)},
		{"Echo's own (no headers)", echoApp(echoOwn)},
	}},
	{"Fiber", []httpPeer{
		{bare, fiberApp(func() (fiber.Handler, error) { return func(c *fiber.Ctx) error { return c.Next() }, nil })},
		{ours, fiberApp(fiberOurs)},
		{"Fiber's own", fiberApp(func() (fiber.Handler, error) {
			return fiberlimiter.New(fiberlimiter.Config{Max: wide.burst, Expiration: wide.period}), nil
		})},
	}},
}

func limiterByIP() (*core.Limiter, error) {
	s, err := memstore.New(memstore.Options{})
	if err != nil {
		return nil, err
	}
	return core.New(core.Config{Store: s, Rules: []core.Rule{{Name: "api", Limit: wide.limit(), Key: keyfuncs.RemoteIP}}})
}

func stdOurs(h http.Handler) (http.Handler, error) {
	l, err := limiterByIP()
	return nethttp.New(l)(h), err
}

func ginOurs() (gin.HandlerFunc, error) {
	l, err := limiterByIP()
	return ginmw.New(l), err
}

func echoOurs() (echo.MiddlewareFunc, error) {
	l, err := limiterByIP()
	return echomw.New(l), err
}

func fiberOurs() (fiber.Handler, error) {
	l, err := limiterByIP()
	return fibermw.New(l), err
}

func ulule() *limiter.Limiter {
	return limiter.New(ululemem.NewStore(), limiter.Rate{Period: wide.period, Limit: int64(wide.burst)})
}

func stdUlule(h http.Handler) (http.Handler, error) {
	return ululestd.NewMiddleware(ulule()).Handler(h), nil
}

func stdGoLimiter(h http.Handler) (http.Handler, error) {
	s, err := memorystore.New(&memorystore.Config{Tokens: uint64(wide.burst), Interval: wide.period, SweepMinTTL: wide.period})
	if err != nil {
		return nil, err
	}
	m, err := httplimit.NewMiddleware(s, httplimit.IPKeyFunc())
	if err != nil {
		return nil, err
	}
	return m.Handle(h), nil
}

func stdThrottled(h http.Handler) (http.Handler, error) {
	s, err := throttledmem.NewCtx(0)
	if err != nil {
		return nil, err
	}
	l, err := throttled.NewGCRARateLimiterCtx(s, throttled.RateQuota{
		MaxRate: throttled.PerDuration(wide.units, wide.period), MaxBurst: wide.burst - 1,
	})
	if err != nil {
		return nil, err
	}
	m := throttled.HTTPRateLimiterCtx{RateLimiter: l, VaryBy: &throttled.VaryBy{RemoteAddr: true}}
	return m.RateLimit(h), nil
}

func stdTollbooth(h http.Handler) (http.Handler, error) {
	l := tollbooth.NewLimiter(wide.perSecond(), nil)
	l.SetBurst(wide.burst)
	l.SetIPLookups([]string{"RemoteAddr"})
	return tollbooth.LimitHandler(l, h), nil
}

func ginLimit() (gin.HandlerFunc, error) {
	s := ginlimit.InMemoryStore(&ginlimit.InMemoryOptions{Rate: wide.period, Limit: uint(wide.burst)})
	return ginlimit.RateLimiter(s, &ginlimit.Options{KeyFunc: func(c *gin.Context) string { return c.RemoteIP() }}), nil
}

func echoOwn() (echo.MiddlewareFunc, error) {
	s := middleware.NewRateLimiterMemoryStoreWithConfig(middleware.RateLimiterMemoryStoreConfig{
		Rate: rate.Limit(wide.perSecond()), Burst: wide.burst, ExpiresIn: 24 * time.Hour,
	})
	return middleware.RateLimiter(s), nil
}
