// Package redistest gives tests a real Redis: the one at REDIS_ADDR, or servers
// of their own on free loopback ports, started from the redis-server in PATH, or
// from the program at the absolute path HEADGATE_REDIS_SERVER. A [Server] ends with the test that
// asked for it, also if the test binary is killed (on Linux). No other server is ever flushed.
package redistest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience is how long a server or a group of servers may take to become ready.
const patience = 30 * time.Second

// Addr returns the address of a Redis server: REDIS_ADDR if it is set, else
// that of a new server which ends with the test. A server from REDIS_ADDR may
// hold foreign keys; use [Prefix]. Without REDIS_ADDR and redis-server it leaves
// the test out, as [Start] does.
func Addr(t testing.TB) string {
	t.Helper()
	if addr := os.Getenv("REDIS_ADDR"); addr != "" {
		return addr
	}
	return Start(t).Addr
}

// Prefix returns a prefix for the keys of this test that no other test, process
// or machine uses.
func Prefix(t testing.TB) string {
	t.Helper()
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		t.Fatal(err)
	}
	return "test-" + hex.EncodeToString(b[:]) + ":"
}

// until calls done again and again, a few milliseconds apart, until it returns
// true.
func until(t testing.TB, what string, done func(ctx context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done(ctx) {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %s", what, patience)
		case <-tick.C:
		}
	}
}

// dial returns a client that tries once and ends with the test.
func dial(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, ReadTimeout: patience,
		DisableIdentity: true})
	t.Cleanup(func() { c.Close() })
	return c
}
