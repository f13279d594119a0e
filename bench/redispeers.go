package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/headgate/headgate/store/redisstore"
	rueidisstore "github.com/headgate/headgate/store/redisstore/rueidis"
)

// ask takes one unit of a key. A refusal is an error, because the contest is not
// about refusals.
type ask func(ctx context.Context, key string) error

// redisPeer is a limiter in Redis. open returns a function that makes one ask
// for each caller, and one that closes the limiter.
type redisPeer struct {
	name string
	open func(addr string, q quota) (worker func() ask, stop func(), err error)
	idle bool // it limits nothing: it bounds what a limiter can reach
}

// The contenders that the guard compares by name.
const (
	oursRueidis = "headgate, rueidis"
	redisRate   = "redis_rate"
	rueidisRate = "redis_rate's script, rueidis"
	rueidisGCRA = "short GCRA, rueidis"
	ululeRedis  = "ulule redis"
)

var redisPeers = []redisPeer{
	{name: ours, open: openRedisStore},
	{name: oursRueidis, open: openRueidisStore},
	{name: redisRate, open: openRedisRate},
	{name: rueidisRate, open: openRueidisRate},
	{name: rueidisGCRA, open: openRueidis},
	{name: ululeRedis, open: openUluleRedis},
	{name: "throttled goredis", open: openThrottledRedis},
	{name: "bare EVALSHA, go-redis", open: openEvalSHA, idle: true},
	{name: "PING, go-redis", open: openPing, idle: true},
}

// redisPeersOf returns the peers of those names, in that order.
func redisPeersOf(names ...string) []redisPeer {
	var list []redisPeer
	for _, name := range names {
		i := slices.IndexFunc(redisPeers, func(r redisPeer) bool { return r.name == name })
		list = append(list, redisPeers[i])
	}
	return list
}

// steady refuses no request in the contest. Keys get their unit back before the
// next request for them, as the keys of most callers do.
var steady = quota{units: 1000, period: time.Second, burst: 1_000_000}

// goRedis is the client of all peers but those on rueidis, with its own defaults for
// everything that matters to speed.
func goRedis(addr string) (*redis.Client, func()) {
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	return c, func() { c.Close() }
}

var errRefused = errors.New("refused, where there is enough for all")

// admitted returns the error of an ask.
func admitted(yes bool, err error) error {
	if err == nil && !yes {
		return errRefused
	}
	return err
}

func same(a ask) func() ask { return func() ask { return a } }

func openRedisStore(addr string, q quota) (func() ask, func(), error) {
	c, stop := goRedis(addr)
	s, err := redisstore.New(c, redisOptions)
	return steps(s, 1, q), stop, err
}

func openRueidisStore(addr string, q quota) (func() ask, func(), error) {
	c, err := rueidisstore.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
	if err != nil {
		return nil, func() {}, err
	}
	s, err := rueidisstore.New(c, redisOptions)
	return steps(s, 1, q), c.Close, err
}

var redisOptions = redisstore.Options{Prefix: redisstore.DefaultPrefix, Timeout: 5 * time.Second}

func openRedisRate(addr string, q quota) (func() ask, func(), error) {
	c, stop := goRedis(addr)
	l := redis_rate.NewLimiter(c)
	limit := redis_rate.Limit{Rate: q.units, Period: q.period, Burst: q.burst}

	return same(func(ctx context.Context, key string) error {
		r, err := l.Allow(ctx, key, limit)
		return admitted(err == nil && r.Allowed > 0, err)
	}), stop, nil
}

func openUluleRedis(addr string, q quota) (func() ask, func(), error) {
	c, stop := goRedis(addr)
	s, err := ululeredis.NewStoreWithOptions(c, limiter.StoreOptions{Prefix: "ulule"})
	if err != nil {
		return nil, stop, err
	}
	l := limiter.New(s, limiter.Rate{Period: time.Hour, Limit: int64(q.burst)})
	return same(func(ctx context.Context, key string) error {
		c, err := l.Get(ctx, key)
		return admitted(!c.Reached, err)
	}), stop, nil
}

func openThrottledRedis(addr string, q quota) (func() ask, func(), error) {
	c, stop := goRedis(addr)

	s, err := goredisstore.NewCtx(c, "throttled:")
	if err != nil {
		return nil, stop, err
	}

	l, err := throttled.NewGCRARateLimiterCtx(s, throttled.RateQuota{
		MaxRate: throttled.PerDuration(q.units, q.period), MaxBurst: q.burst - 1,
	})
	if err != nil {
		return nil, stop, err
	}

	// By default it gives up a key after 10 attempts, which many callers would make it do.
	l.SetMaxCASAttemptsLimit(1000)
	return same(func(ctx context.Context, key string) error {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		return admitted(!limited, err)
	}), stop, nil
}

func openEvalSHA(addr string, _ quota) (func() ask, func(), error) {
	c, stop := goRedis(addr)
	sha, err := c.ScriptLoad(context.Background(), "return 1").Result()
	return same(func(ctx context.Context, key string) error {
		return c.EvalSha(ctx, sha, []string{key}).Err()
	}), stop, err
}

func openPing(addr string, _ quota) (func() ask, func(), error) {
	c, stop := goRedis(addr)
	return same(func(ctx context.Context, _ string) error { return c.Ping(ctx).Err() }), stop, nil
}
