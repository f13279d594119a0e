//go:build linux

package clockfaults

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

// server is a redis-server whose clock the test moves.
type server struct{ *redistest.Clock }

// start starts a server whose clock is off by offset.
func start(t *testing.T, offset time.Duration, args ...string) server {
	t.Helper()
	return server{redistest.StartClock(t, offset, args...)}
}

// connect returns a client that ends with the test.
func (s server) connect(t *testing.T) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { c.Close() })
	return c
}

// now returns the time of the server's clock.
func now(t *testing.T, c *redis.Client) time.Time {
	t.Helper()
	at, err := c.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return at
}
