package rediscall_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediscall"
)

// timeout bounds the calls of the tests.
const timeout = time.Second

// call makes a call and checks that it ends with the error after exactly the time.
func call(t *testing.T, c *rediscall.Caller, f func(context.Context) error, wantErr error, wantTook time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	begin := time.Now()
	err := c.Do(ctx, f)
	if took := time.Since(begin); !errors.Is(err, wantErr) || took != wantTook {
		t.Errorf("%v after %s, want %v after %s", err, took, wantErr, wantTook)
	}
}

// takes returns a call that ends after d and ignores its context.
func takes(d time.Duration, err error) func(context.Context) error {
	return func(context.Context) error {
		time.Sleep(d)
		return err
	}
}

var errDown = errors.New("down")

// ignoring returns a client that ignores deadlines. It is made outside of bubbles, as
// it has goroutines until it is closed.
func ignoring(t *testing.T) redis.UniversalClient {
	client := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { client.Close() })
	return client
}

func TestCallerEndsCallsOfAClientThatIgnoresDeadlines(t *testing.T) {
	client := ignoring(t)
	synctest.Test(t, func(t *testing.T) {
		c := rediscall.NewCaller(client)
		call(t, c, takes(timeout/2, nil), nil, timeout/2)
		call(t, c, takes(timeout/2, errDown), errDown, timeout/2)
		call(t, c, takes(time.Hour, nil), context.DeadlineExceeded, timeout)
		time.Sleep(time.Hour)
	})
}

// Four late calls may go on. A fifth waits for one of them to end.
func TestCallerBoundsLateCalls(t *testing.T) {
	client := ignoring(t)
	synctest.Test(t, func(t *testing.T) {
		c := rediscall.NewCaller(client)
		// The client ignores deadlines: each of these calls goes on for nine timeouts after Do has
		// returned.
		for range 4 {
			call(t, c, takes(10*timeout, nil), context.DeadlineExceeded, timeout)
		}

		// The fifth fails by its deadline while it waits, and must not be made late.
		begun := false
		late := func(context.Context) error { begun = true; return nil }
		call(t, c, late, context.DeadlineExceeded, timeout)
		if begun {
			t.Error("a fifth call was made")
		}

		time.Sleep(4*timeout + timeout/2) // until half a second before the first call ends

		// An end makes room: the wait is the half second that the first call still takes, and not a
		// whole timeout.
		call(t, c, late, nil, timeout/2)

		// The other calls end before the bubble does.
		time.Sleep(time.Hour)
	})
}

// A call through a client that heeds deadlines starts no goroutine, and Do waits
// for its answer.
func TestCallerLeavesDeadlinesToAClientThatHeedsThem(t *testing.T) {
	for name, client := range map[string]redis.UniversalClient{
		"server":  redis.NewClient(&redis.Options{ContextTimeoutEnabled: true}),
		"cluster": redis.NewClusterClient(&redis.ClusterOptions{ContextTimeoutEnabled: true}),
		"ring":    redis.NewRing(&redis.RingOptions{ContextTimeoutEnabled: true}),
	} {
		t.Run(name, func(t *testing.T) {
			defer client.Close()
			synctest.Test(t, func(t *testing.T) {
				c := rediscall.NewCaller(client)
				call(t, c, takes(time.Hour, nil), nil, time.Hour)
				call(t, c, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
					context.DeadlineExceeded, timeout)
			})
		})
	}
}

// A panic in a goroutine of Do would end the process.
func TestCallerReturnsPanics(t *testing.T) {
	for _, heeds := range []bool{false, true} {
		client := redis.NewClient(&redis.Options{ContextTimeoutEnabled: heeds})
		defer client.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := rediscall.NewCaller(client).Do(ctx, func(context.Context) error { panic("a hook") })
		if err == nil || err.Error() != "the Redis client panicked: a hook" {
			t.Errorf("heeds deadlines %t: %v", heeds, err)
		}
	}
}
