package main

import (
	"net"
	"net/http"
	"time"

	ginlimit "github.com/JGLTechnologies/gin-rate-limit"
	"github.com/didip/tollbooth/v8"
	tollboothlimiter "github.com/didip/tollbooth/v8/limiter"
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
	ululelimiter "github.com/ulule/limiter/v3"
	ululegin "github.com/ulule/limiter/v3/drivers/middleware/gin"
	ululestd "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululemem "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/headgate/headgate/limiter"
)

// The rows of headgate: with its default of five headers of two styles, and with the
// headers that most others send.
const oursX = "headgate, X-RateLimit only"

// oursShort is headgate with the refusal of Fiber's own limiter, but for a Cache-Control that keeps
// it out of caches.
const oursShort = "headgate, Retry-After and a short text"

// httpContests has two contests for each framework. Where headgate is alone, no peer
// of the framework can be set to send the same headers.
var httpContests = []httpContest{
	{"net/http, headers", "net/http, sending headers", []httpPeer{
		{bare, std(func(_ quota, h http.Handler) (http.Handler, error) { return h, nil })},
		{ours, std(stdOurs(limiter.XRateLimit | limiter.Draft8))},
		{oursX, std(stdOurs(limiter.XRateLimit))},
		{httpLimits, std(stdGoLimiter)},
		{httpRate, std(stdHTTPRate())},
		{"throttled", std(stdThrottled)},
		{"tollbooth", std(stdTollbooth)},
		{"ulule stdlib", std(stdUlule)},
	}},
	{"net/http, no headers", "net/http, sending no headers", []httpPeer{
		{bare, std(func(_ quota, h http.Handler) (http.Handler, error) { return h, nil })},
		{ours, std(stdOurs(limiter.NoHeaders))},
		{httpRate, std(stdHTTPRate(httprate.WithResponseHeaders(httprate.ResponseHeaders{})))},
	}},
	{"Gin, headers", "Gin, sending headers", []httpPeer{
		{bare, ginApp(ginBare)},
		{ours, ginApp(ginOurs(limiter.XRateLimit | limiter.Draft8))},
		{oursX, ginApp(ginOurs(limiter.XRateLimit))},
		{ginRate, ginApp(ginLimit(nil))},
		{"ulule gin", ginApp(func(q quota) (gin.HandlerFunc, error) { return ululegin.NewMiddleware(ulule(q)), nil })},
	}},
	{"Gin, no headers", "Gin, sending no headers", []httpPeer{
		{bare, ginApp(ginBare)},
		{ours, ginApp(ginOurs(limiter.NoHeaders))},
		{ginRate, ginApp(ginLimit(func(*gin.Context, ginlimit.Info) {}))},
	}},
	{"Echo, headers", "Echo, sending headers", []httpPeer{
		{bare, echoApp(echoBare)},
		{ours, echoApp(echoOurs(limiter.XRateLimit | limiter.Draft8))},
		{oursX, echoApp(echoOurs(limiter.XRateLimit))},
	}},
	{"Echo, no headers", "Echo, sending no headers", []httpPeer{
		{bare, echoApp(echoBare)},
		{ours, echoApp(echoOurs(limiter.NoHeaders))},
		{echoOwn, echoApp(echoLimit)},
	}},
	{"Fiber, headers", "Fiber, sending headers", []httpPeer{
		{bare, fiberApp(fiberBare)},
		{ours, fiberApp(fiberOurs(limiter.XRateLimit | limiter.Draft8))},
		{oursX, fiberApp(fiberOurs(limiter.XRateLimitDelta))},
		{fiberOwn, fiberApp(fiberLimit)},
	}},
	{"Fiber, no headers", "Fiber, sending no headers", []httpPeer{
		{bare, fiberApp(fiberBare)},
		{ours, fiberApp(fiberOurs(limiter.NoHeaders))},
	}},
	{"Fiber, short refusals", "Fiber, refusing in a short text", []httpPeer{
		{oursShort, fiberApp(fiberOursShort)},
		{fiberOwn, fiberApp(fiberLimit)},
	}},
}

// The contenders that are compared by name. An asterisk marks those that pass the exam and are
// known not to be exact.
const (
	httpLimits = "go-limiter httplimit"
	httpRate   = "httprate*"
	ginRate    = "gin-rate-limit*"
	echoOwn    = "Echo's own"
	fiberOwn   = "Fiber's own"
)

func ginBare(quota) (gin.HandlerFunc, error) { return func(c *gin.Context) { c.Next() }, nil }

func echoBare(quota) (echo.MiddlewareFunc, error) {
	return func(next echo.HandlerFunc) echo.HandlerFunc { return next }, nil
}

func fiberBare(quota) (fiber.Handler, error) {
	return func(c *fiber.Ctx) error { return c.Next() }, nil
}

func ulule(q quota) *ululelimiter.Limiter {
	return ululelimiter.New(ululemem.NewStore(), ululelimiter.Rate{Period: q.period, Limit: int64(q.burst)})
}

func stdUlule(q quota, h http.Handler) (http.Handler, error) {
	return ululestd.NewMiddleware(ulule(q)).Handler(h), nil
}

func stdHTTPRate(options ...httprate.Option) func(quota, http.Handler) (http.Handler, error) {
	return func(q quota, h http.Handler) (http.Handler, error) {
		return httprate.LimitBy(q.burst, q.period, byPeer, options...)(h), nil
	}
}

// byPeer is the key that httprate's documentation shows for a server that no
// proxy stands in front of.
func byPeer(r *http.Request) (string, error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return httprate.CanonicalizeIP(host), err
}

func stdGoLimiter(q quota, h http.Handler) (http.Handler, error) {
	s, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.burst), Interval: q.period, SweepMinTTL: q.period})
	if err != nil {
		return nil, err
	}
	m, err := httplimit.NewMiddleware(s, httplimit.IPKeyFunc())
	if err != nil {
		return nil, err
	}
	return m.Handle(h), nil
}

func stdThrottled(q quota, h http.Handler) (http.Handler, error) {
	s, err := throttledmem.NewCtx(0)
	if err != nil {
		return nil, err
	}
	l, err := throttled.NewGCRARateLimiterCtx(s, throttled.RateQuota{
		MaxRate: throttled.PerDuration(q.units, q.period), MaxBurst: q.burst - 1,
	})
	if err != nil {
		return nil, err
	}
	m := throttled.HTTPRateLimiterCtx{RateLimiter: l, VaryBy: &throttled.VaryBy{RemoteAddr: true}}
	return m.RateLimit(h), nil
}

func stdTollbooth(q quota, h http.Handler) (http.Handler, error) {
	l := tollbooth.NewLimiter(q.perSecond(), nil)
	l.SetBurst(q.burst)
	l.SetIPLookup(tollboothlimiter.IPLookup{Name: "RemoteAddr"})
	return tollbooth.LimitHandler(l, h), nil
}

func ginLimit(before func(*gin.Context, ginlimit.Info)) func(quota) (gin.HandlerFunc, error) {
	return func(q quota) (gin.HandlerFunc, error) {
		s := ginlimit.InMemoryStore(&ginlimit.InMemoryOptions{Rate: q.period, Limit: uint(q.burst)})
		return ginlimit.RateLimiter(s, &ginlimit.Options{
			KeyFunc: func(c *gin.Context) string { return c.RemoteIP() }, BeforeResponse: before,
		}), nil
	}
}

func echoLimit(q quota) (echo.MiddlewareFunc, error) {
	s := middleware.NewRateLimiterMemoryStoreWithConfig(middleware.RateLimiterMemoryStoreConfig{
		Rate: rate.Limit(q.perSecond()), Burst: q.burst, ExpiresIn: 24 * time.Hour,
	})
	return middleware.RateLimiter(s), nil
}

func fiberLimit(q quota) (fiber.Handler, error) {
	return fiberlimiter.New(fiberlimiter.Config{Max: q.burst, Expiration: q.period}), nil
}
