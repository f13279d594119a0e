package failover

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience bounds every wait.
const patience = 30 * time.Second

func connect(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { c.Close() })
	return c
}

// patiently returns a client for the reads of a test, whose calls do not time out.
func patiently(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience})
	t.Cleanup(func() { c.Close() })
	return c
}

// until polls until a condition holds, and returns how long that took.
func until(t testing.TB, what string, holds func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(ms)
	defer tick.Stop()
	for !holds() {
		if time.Since(start) > patience {
			t.Fatalf("%s: not within %s", what, patience)
		}
		<-tick.C
	}
	return time.Since(start)
}

// everyKeyExpires fails if a key has no time to live.
func everyKeyExpires(t testing.TB, c *redis.Client) {
	t.Helper()
	ctx, keys := context.Background(), 0
	for it := c.Scan(ctx, 0, "*", 1000).Iterator(); it.Next(ctx); keys++ {
		if c.PTTL(ctx, it.Val()).Val() == -1 { // 0 means less than a millisecond, and -2 that the key is gone
			t.Errorf("%s has no time to live", it.Val())
		}
	}
	if keys == 0 {
		t.Error("there are no keys")
	}
}
