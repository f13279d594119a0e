package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	ginlimit "github.com/JGLTechnologies/gin-rate-limit"
	"github.com/didip/tollbooth/v8"
	tollboothlimiter "github.com/didip/tollbooth/v8/limiter"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/go-chi/httprate"
	"github.com/labstack/echo/v4/middleware"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	throttledmem "github.com/throttled/throttled/v2/store/memstore"
	ululelimiter "github.com/ulule/limiter/v3"
	ululemem "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// take takes one unit of the key and reports whether it was admitted.
type take func(key string) bool

// memoryPeer is a limiter in memory. open returns a function that makes one
// take for each goroutine.
type memoryPeer struct {
	name    string
	keyless bool // it is one limiter, for one key
	open    func(quota) (func() take, error)
}

// The contenders that the guard compares by name.
const (
	ours      = "headgate"
	oursAllow = "headgate, Limiter.Allow"
	oursTwice = "headgate, Limiter.Allow, two rules"
	oursTake  = "headgate, Limiter.Take"
	goLimits  = "sethvargo/go-limiter"
	goTwice   = "sethvargo/go-limiter, asked twice"
)

var memoryPeers = []memoryPeer{
	{name: ours, open: openStore},
	{name: oursAllow, open: openLimiter(1, allow)},
	{name: oursTwice, open: openLimiter(2, allow)},
	{name: oursTake, open: openLimiter(1, takeResult)},
	{name: goLimits, open: openGoLimiter},
	{name: goTwice, open: twice(openGoLimiter)},
	{name: "map of x/time/rate, mutex", open: openRateMap},
	{name: "throttled memstore", open: openThrottled},
	{name: "ulule memory", open: openUlule},
	{name: httpRate + ", no headers", open: openHTTPRate},
	{name: "Echo's memory store", open: openEchoStore},
	{name: "tollbooth", open: openTollbooth},
	{name: ginRate, open: openGinLimit},
	{name: "failsafe-go (no keys)", keyless: true, open: openFailsafe},
	{name: "x/time/rate (no keys)", keyless: true, open: openRate},
}

// shared opens a peer whose take all goroutines share.
func shared(t take) (func() take, error) { return func() take { return t }, nil }

func openStore(q quota) (func() take, error) {
	s, err := memstore.New(memstore.Options{})
	if err != nil {
		return nil, err
	}
	return func() take { return takeOf(s, q.limit(), "api") }, nil
}

// openLimiter opens a limiter with n rules; way calls one of its methods.
func openLimiter(n int, way func(l *limiter.Limiter, key string) bool) func(quota) (func() take, error) {
	return func(q quota) (func() take, error) {
		s, err := memstore.New(memstore.Options{})
		if err != nil {
			return nil, err
		}

		// The callers name the key of a request, so the functions of the rules are not asked.
		var rules []limiter.Rule
		for i := range n {
			rules = append(rules, limiter.Rule{
				Name: fmt.Sprint("api", i), Limit: q.limit(),
				Key: func(core.Request) (string, bool) { return "", true },
			})
		}

		l, err := limiter.New(limiter.Config{Store: s, Rules: rules})
		if err != nil {
			return nil, err
		}
		return shared(func(key string) bool { return way(l, key) })
	}
}

// twice opens two limiters of a peer for the two rules of a request. What the first has charged
// stays charged when the second refuses.
func twice(open func(quota) (func() take, error)) func(quota) (func() take, error) {
	return func(q quota) (func() take, error) {
		first, err := open(q)
		if err != nil {
			return nil, err
		}
		second, err := open(q)
		if err != nil {
			return nil, err
		}
		return func() take {
			one, other := first(), second()
			return func(key string) bool { return one(key) && other(key) }
		}, nil
	}
}

func allow(l *limiter.Limiter, key string) bool {
	d, err := l.Allow(context.Background(), key, 1)
	return err == nil && d.Allowed
}

func takeResult(l *limiter.Limiter, key string) bool {
	res, err := l.Take(context.Background(), key, 1)
	return err == nil && res.Allowed()
}

func openGoLimiter(q quota) (func() take, error) {
	s, err := memorystore.New(&memorystore.Config{
		Tokens: uint64(q.burst), Interval: q.period, SweepInterval: time.Second, SweepMinTTL: q.period,
	})
	if err != nil {
		return nil, err
	}
	return shared(func(key string) bool {
		_, _, _, ok, err := s.Take(context.Background(), key)
		return ok && err == nil
	})
}

func openRateMap(q quota) (func() take, error) {
	var mu sync.Mutex
	all := map[string]*rate.Limiter{}
	return shared(func(key string) bool {
		mu.Lock()
		l := all[key]
		if l == nil {
			l = rate.NewLimiter(rate.Limit(q.perSecond()), q.burst)
			all[key] = l
		}
		mu.Unlock()
		return l.Allow()
	})
}

func openThrottled(q quota) (func() take, error) {
	s, err := throttledmem.NewCtx(0)
	if err != nil {
		return nil, err
	}

	// MaxBurst is what may come together with a first request, so it is one less than a burst.
	l, err := throttled.NewGCRARateLimiterCtx(s, throttled.RateQuota{
		MaxRate: throttled.PerDuration(q.units, q.period), MaxBurst: q.burst - 1,
	})
	if err != nil {
		return nil, err
	}
	l.SetMaxCASAttemptsLimit(1000) // by default it gives up a hot key after 10

	return shared(func(key string) bool {
		limited, _, err := l.RateLimitCtx(context.Background(), key, 1)
		return !limited && err == nil
	})
}

func openUlule(q quota) (func() take, error) {
	s := ululemem.NewStoreWithOptions(ululelimiter.StoreOptions{Prefix: "api", CleanUpInterval: time.Second})
	l := ululelimiter.New(s, ululelimiter.Rate{Period: q.period, Limit: int64(q.burst)})
	return shared(func(key string) bool {
		c, err := l.Get(context.Background(), key)
		return err == nil && !c.Reached
	})
}

func openHTTPRate(q quota) (func() take, error) {
	l := httprate.NewRateLimiter(q.burst, q.period, httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
	r, err := http.NewRequest("GET", "http://localhost/", nil)
	if err != nil {
		return nil, err
	}
	return shared(func(key string) bool { return !l.OnLimit(nil, r, key) })
}

func openEchoStore(q quota) (func() take, error) {
	s := middleware.NewRateLimiterMemoryStoreWithConfig(middleware.RateLimiterMemoryStoreConfig{
		Rate: rate.Limit(q.perSecond()), Burst: q.burst, ExpiresIn: q.period,
	})
	return shared(func(key string) bool {
		ok, err := s.Allow(key)
		return ok && err == nil
	})
}

func openTollbooth(q quota) (func() take, error) {
	l := tollbooth.NewLimiter(q.perSecond(), &tollboothlimiter.ExpirableOptions{DefaultExpirationTTL: q.period})
	l.SetBurst(q.burst)
	return shared(func(key string) bool { return !l.LimitReached(key) })
}

func openGinLimit(q quota) (func() take, error) {
	s := ginlimit.InMemoryStore(&ginlimit.InMemoryOptions{Rate: q.period, Limit: uint(q.burst)})
	return shared(func(key string) bool { return !s.Limit(key, nil).RateLimited })
}

func openFailsafe(q quota) (func() take, error) {
	if q.burst < 1 {
		return nil, errors.New("no burst")
	}
	l := ratelimiter.NewBursty[any](uint(q.burst), q.period)
	return shared(func(string) bool { return l.TryAcquirePermit() })
}

func openRate(q quota) (func() take, error) {
	l := rate.NewLimiter(rate.Limit(q.perSecond()), q.burst)
	return shared(func(string) bool { return l.Allow() })
}
