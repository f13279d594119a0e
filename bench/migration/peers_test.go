package migration

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	ginlimit "github.com/JGLTechnologies/gin-rate-limit"
	"github.com/didip/tollbooth/v8"
	tollboothlimiter "github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"
	"github.com/go-redis/redis_rate/v10"
	"github.com/gofiber/fiber/v2"
	fiberlimiter "github.com/gofiber/fiber/v2/middleware/limiter"
	"github.com/gofiber/fiber/v2/utils"
	"github.com/labstack/echo/v4/middleware"
	"github.com/redis/go-redis/v9"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	throttledmem "github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ululemem "github.com/ulule/limiter/v3/drivers/store/memory"
	"github.com/valyala/fasthttp"
	"golang.org/x/time/rate"

	"github.com/headgate/headgate/internal/test/redistest"
)

// peer is another library's limiter under one of its settings. It reports which
// of the requests of one client, made at these instants after the first, it admits.
type peer func(t *testing.T, instants []time.Duration) []bool

// peers are the settings in docs/peers.md, by the heading and the text that they
// have there.
var peers = map[string]map[string]peer{
	"ulule/limiter": {
		`"5-S"`:    ululeText("5-S"),
		`"100-M"`:  ululeText("100-M"),
		`"1000-H"`: ululeText("1000-H"),
		`limiter.Rate{Limit: 5, Period: 2 * time.Second}`: ululeRate(limiter.Rate{Limit: 5, Period: 2 * time.Second}),
	},
	"didip/tollbooth": {
		`tollbooth.NewLimiter(1, nil)`: tollboothLimiter(
			func() *tollboothlimiter.Limiter { return tollbooth.NewLimiter(1, nil) }),
		`tollbooth.NewLimiter(5, nil)`: tollboothLimiter(
			func() *tollboothlimiter.Limiter { return tollbooth.NewLimiter(5, nil) }),
		`tollbooth.NewLimiter(0.5, nil)`: tollboothLimiter(
			func() *tollboothlimiter.Limiter { return tollbooth.NewLimiter(0.5, nil) }),
		`tollbooth.NewLimiter(2.5, nil)`: tollboothLimiter(
			func() *tollboothlimiter.Limiter { return tollbooth.NewLimiter(2.5, nil) }),
		`tollbooth.NewLimiter(10, nil).SetBurst(30)`: tollboothLimiter(
			func() *tollboothlimiter.Limiter { return tollbooth.NewLimiter(10, nil).SetBurst(30) }),
	},
	"go-chi/httprate": {
		`httprate.LimitBy(5, 2*time.Second, key)`: httprateBy(5, 2*time.Second),
		`httprate.LimitBy(100, time.Minute, key)`: httprateBy(100, time.Minute),
		`httprate.LimitByIP(100, time.Minute)`: overHTTP(
			//lint:ignore SA1019 the page maps what its users have
			func() func(http.Handler) http.Handler { return httprate.LimitByIP(100, time.Minute) }),
	},
	"throttled/throttled": {
		`RateQuota{MaxRate: throttled.PerSec(5), MaxBurst: 4}`: throttledQuota(
			throttled.RateQuota{MaxRate: throttled.PerSec(5), MaxBurst: 4}),
		`RateQuota{MaxRate: throttled.PerSec(3)}`: throttledQuota(
			throttled.RateQuota{MaxRate: throttled.PerSec(3)}),
		`RateQuota{MaxRate: throttled.PerMin(20), MaxBurst: 5}`: throttledQuota(
			throttled.RateQuota{MaxRate: throttled.PerMin(20), MaxBurst: 5}),
		`RateQuota{MaxRate: throttled.PerDuration(5, 2*time.Second), MaxBurst: 4}`: throttledQuota(
			throttled.RateQuota{MaxRate: throttled.PerDuration(5, 2*time.Second), MaxBurst: 4}),
	},
	"go-redis/redis_rate": {
		`redis_rate.PerSecond(5)`:   redisRateLimit(redis_rate.PerSecond(5)),
		`redis_rate.PerSecond(10)`:  redisRateLimit(redis_rate.PerSecond(10)),
		`redis_rate.PerMinute(100)`: redisRateLimit(redis_rate.PerMinute(100)),
		`redis_rate.Limit{Rate: 5, Period: 2 * time.Second, Burst: 10}`: redisRateLimit(
			redis_rate.Limit{Rate: 5, Period: 2 * time.Second, Burst: 10}),
	},
	"golang.org/x/time/rate": {
		`rate.NewLimiter(5, 5)`: rateLimiter(
			func() *rate.Limiter { return rate.NewLimiter(5, 5) }),
		`rate.NewLimiter(2.5, 5)`: rateLimiter(
			func() *rate.Limiter { return rate.NewLimiter(2.5, 5) }),
		`rate.NewLimiter(10, 30)`: rateLimiter(
			func() *rate.Limiter { return rate.NewLimiter(10, 30) }),
		`rate.NewLimiter(rate.Every(200*time.Millisecond), 1)`: rateLimiter(
			func() *rate.Limiter { return rate.NewLimiter(rate.Every(200*time.Millisecond), 1) }),
	},
	"Echo's limiter": {
		`middleware.NewRateLimiterMemoryStore(20)`: echoStore(
			middleware.RateLimiterMemoryStoreConfig{Rate: 20}),
		`middleware.NewRateLimiterMemoryStore(0.5)`: echoStore(
			middleware.RateLimiterMemoryStoreConfig{Rate: 0.5}),
		`middleware.RateLimiterMemoryStoreConfig{Rate: 2.5}`: echoStore(
			middleware.RateLimiterMemoryStoreConfig{Rate: 2.5}),
		`middleware.RateLimiterMemoryStoreConfig{Rate: 10, Burst: 30}`: echoStore(
			middleware.RateLimiterMemoryStoreConfig{Rate: 10, Burst: 30}),
	},
	"Fiber's limiter": {
		`limiter.Config{}`: fiberConfig(fiberlimiter.Config{}),
		`limiter.Config{Max: 20, Expiration: 30 * time.Second}`: fiberConfig(
			fiberlimiter.Config{Max: 20, Expiration: 30 * time.Second}),
		`limiter.Config{Max: 20, Expiration: 30 * time.Second, LimiterMiddleware: limiter.SlidingWindow{}}`: fiberConfig(fiberlimiter.Config{
			Max: 20, Expiration: 30 * time.Second, LimiterMiddleware: fiberlimiter.SlidingWindow{},
		}),
	},
	"sethvargo/go-limiter": {
		`memorystore.Config{Tokens: 5, Interval: 100 * time.Millisecond}`: goLimiterConfig(
			memorystore.Config{Tokens: 5, Interval: 100 * time.Millisecond}),
	},
	"JGLTechnologies/gin-rate-limit": {
		`ratelimit.InMemoryOptions{Limit: 5, Rate: time.Minute}`: ginRateLimit(
			ginlimit.InMemoryOptions{Limit: 5, Rate: time.Minute}),
	},
}

// inBubble is a peer that reads time.Now. open makes its limiter and returns a
// function that makes a request.
func inBubble(open func(t *testing.T) func() bool) peer {
	return func(t *testing.T, instants []time.Duration) (admitted []bool) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			allow, start := open(t), time.Now()
			for _, at := range instants {
				time.Sleep(time.Until(start.Add(at)))
				admitted = append(admitted, allow())
			}
		})
		return admitted
	}
}

// overHTTP is a peer that is a middleware.
func overHTTP(open func() func(http.Handler) http.Handler) peer {
	return inBubble(func(*testing.T) func() bool {
		h := open()(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		return func() bool {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			return w.Code == http.StatusOK
		}
	})
}

func httprateBy(n int, period time.Duration) peer {
	return overHTTP(func() func(http.Handler) http.Handler { return httprate.LimitBy(n, period, httprate.Key("k")) })
}

func ululeText(text string) peer {
	r, err := limiter.NewRateFromFormatted(text)
	if err != nil {
		panic(err)
	}
	return ululeRate(r)
}

// ululeRate removes no keys, because that takes a goroutine that never ends.
func ululeRate(r limiter.Rate) peer {
	return inBubble(func(t *testing.T) func() bool {
		l := limiter.New(ululemem.NewStoreWithOptions(limiter.StoreOptions{}), r)
		return func() bool {
			c, err := l.Get(t.Context(), "k")
			if err != nil {
				t.Error(err)
			}
			return !c.Reached
		}
	})
}

func tollboothLimiter(open func() *tollboothlimiter.Limiter) peer {
	return inBubble(func(*testing.T) func() bool {
		l := open()
		return func() bool { return !l.LimitReached("k") }
	})
}

func throttledQuota(q throttled.RateQuota) peer {
	return inBubble(func(t *testing.T) func() bool {
		s, err := throttledmem.NewCtx(0)
		if err != nil {
			t.Fatal(err)
		}

		l, err := throttled.NewGCRARateLimiterCtx(s, q)
		if err != nil {
			t.Fatal(err)
		}
		return func() bool {
			limited, _, err := l.RateLimitCtx(t.Context(), "k", 1)
			if err != nil {
				t.Error(err)
			}
			return !limited
		}
	})
}

func rateLimiter(open func() *rate.Limiter) peer {
	return inBubble(func(*testing.T) func() bool {
		l := open()
		return l.Allow
	})
}

func echoStore(c middleware.RateLimiterMemoryStoreConfig) peer {
	return inBubble(func(t *testing.T) func() bool {
		s := middleware.NewRateLimiterMemoryStoreWithConfig(c)
		return func() bool {
			ok, err := s.Allow("k")
			if err != nil {
				t.Error(err)
			}
			return ok
		}
	})
}

// ginRateLimit has a goroutine that never ends and is therefore started outside the
// bubble. The goroutine deletes old entries in real time, so the bubble first moves its clock
// far ahead.
func ginRateLimit(o ginlimit.InMemoryOptions) peer {
	return func(t *testing.T, instants []time.Duration) []bool {
		s := ginlimit.InMemoryStore(&o)
		return inBubble(func(*testing.T) func() bool {
			time.Sleep(100 * 365 * 24 * time.Hour)
			return func() bool { return !s.Limit("k", nil).RateLimited }
		})(t, instants)
	}
}

// fiberConfig reads whole seconds from a variable of Fiber, which the test sets
// before each request. A goroutine of Fiber sets it to the real time every second. If
// that happens in between, the whole row is run again.
func fiberConfig(c fiberlimiter.Config) peer {
	const start = 4_000_000_000

	once := func(instants []time.Duration) (admitted []bool, undisturbed bool) {
		app := fiber.New()
		app.Use(fiberlimiter.New(c))
		app.Get("/", func(*fiber.Ctx) error { return nil })
		handle := app.Handler()
		for _, at := range instants {
			now := start + uint32(at/time.Second)
			atomic.StoreUint32(&utils.Timestamp, now)
			var ctx fasthttp.RequestCtx
			ctx.Request.SetRequestURI("/")
			handle(&ctx)
			admitted = append(admitted, ctx.Response.StatusCode() == fiber.StatusOK)

			// The clock was set in between, so the instant may have been another.
			if atomic.LoadUint32(&utils.Timestamp) != now {
				return nil, false
			}
		}
		return admitted, true
	}
	return func(t *testing.T, instants []time.Duration) []bool {
		t.Helper()
		for range 100 {
			if admitted, undisturbed := once(instants); undisturbed {
				return admitted
			}
		}
		t.Fatal("Fiber's clock was set in each of 100 runs")
		return nil
	}
}

// goLimiterConfig reads the clock of the machine, not that of package time, and derives
// from it the interval since the key's first request. So each request is made in real
// time, in the interval of its instant. The reset says which interval that was. If the
// machine was too slow, the whole row is run again.
func goLimiterConfig(c memorystore.Config) peer {
	interval := c.Interval

	once := func(t *testing.T, instants []time.Duration) (admitted []bool, inTime bool) {
		s, err := memorystore.New(&c)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(t.Context())

		var start time.Time
		for i, at := range instants {
			// A quarter of the interval after its begin leaves most of it for a slow machine.
			tick := at / interval
			time.Sleep(time.Until(start.Add(tick*interval + interval/4)))
			_, _, reset, ok, err := s.Take(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}

			end := time.Unix(0, int64(reset))
			if i == 0 {
				start = end.Add(-interval)
			}
			if end.Sub(start) != (tick+1)*interval {
				return nil, false
			}
			admitted = append(admitted, ok)
		}
		return admitted, true
	}
	return func(t *testing.T, instants []time.Duration) []bool {
		t.Helper()
		for range 100 {
			if admitted, inTime := once(t, instants); inTime {
				return admitted
			}
		}
		t.Fatalf("the machine was late by %s in each of 100 runs", interval*3/4)
		return nil
	}
}

// redisRateLimit runs the script of redis_rate in a real Redis, with the instants
// in place of the server's clock.
func redisRateLimit(limit redis_rate.Limit) peer {
	return func(t *testing.T, instants []time.Duration) (admitted []bool) {
		t.Helper()
		c := redis.NewClient(&redis.Options{Addr: redistest.Addr(t)})
		defer c.Close()

		clock := &redisClock{Client: c}
		l, key := redis_rate.NewLimiter(clock), redistest.Prefix(t)
		for _, at := range instants {
			clock.now = 1_800_000_000*time.Second + at
			r, err := l.Allow(t.Context(), key, limit)
			if err != nil {
				t.Fatal(err)
			}
			admitted = append(admitted, r.Allowed == 1)
		}
		return admitted
	}
}

// redisClock is a client that gives scripts its own time instead of the server's.
type redisClock struct {
	*redis.Client
	now time.Duration // since 1970
}

type noScript struct{ error }

func (noScript) RedisError() {}

// EvalSha fails, so that the caller sends the text of the script to Eval.
func (c *redisClock) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(noScript{errors.New("NOSCRIPT")})
	return cmd
}

func (c *redisClock) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	n := strconv.Itoa(len(args) + 1)
	if strings.Count(script, `redis.call("TIME")`) != 1 {
		panic("the script reads the time in another way")
	}
	script = strings.Replace(script, `redis.call("TIME")`, `{ ARGV[`+n+`], ARGV[`+n+` + 1] }`, 1)
	args = append(args, int64(c.now/time.Second), int64(c.now%time.Second/time.Microsecond))
	return c.Client.Eval(ctx, script, keys, args...)
}
