// Package bounded makes calls to Redis that end in time, whatever the client
// makes of deadlines.
package bounded

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// mostLate is how many calls may be on their way after their time was over.
const mostLate = 4

// Caller makes calls through a client. It is safe for concurrent use.
type Caller struct {
	heedsDeadline bool
	slots         chan struct{}
}

// NewCaller returns a caller for the client.
func NewCaller(client redis.UniversalClient) *Caller {
	c := &Caller{slots: make(chan struct{}, mostLate)}
	switch client := client.(type) {
	case *redis.Client:
		c.heedsDeadline = client.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		c.heedsDeadline = client.Options().ContextTimeoutEnabled
	case *redis.Ring:
		c.heedsDeadline = client.Options().ContextTimeoutEnabled
	}
	return c
}

// Do calls f and returns its error, or that of ctx, which must have a deadline,
// when that is over. A client that ignores deadlines is then left to finish by
// itself: its own timeouts end the call, and few at a time are let go like that.
// What f writes may be read only if Do returns nil.
func (c *Caller) Do(ctx context.Context, f func(context.Context) error) error {
	if c.heedsDeadline {
		return f(ctx)
	}
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	done := make(chan error, 1)
	go func() {
		defer func() { <-c.slots }()
		done <- f(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
