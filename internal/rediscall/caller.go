package rediscall

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// maxLate is how many calls may still run after their deadline.
const maxLate = 4

// Caller makes calls through a client that return in time even if the client ignores
// deadlines. It is safe for concurrent use.
type Caller struct {
	heedsDeadline bool
	slots         chan struct{}
}

// NewCaller returns a caller for the client.
func NewCaller(client redis.UniversalClient) *Caller {
	return &Caller{heedsDeadline: TraitsOf(client).HeedsDeadlines, slots: make(chan struct{}, maxLate)}
}

// Safely calls f and returns its error. It returns a panic of f, such as one of a hook
// of the client, as an error, because in a goroutine of this module it would end the
// process.
func Safely(ctx context.Context, f func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the Redis client panicked: %v", v)
		}
	}()
	return f(ctx)
}

// Do calls f as [Safely] does and returns its error, or the error of ctx once ctx has ended. ctx
// must have a deadline. If the client ignores deadlines, the call then goes on
// until the client's own timeouts end it; a few such calls may run at a time, and
// further ones wait. The caller may read results of f only if Do returns nil.
func (c *Caller) Do(ctx context.Context, f func(context.Context) error) error {
	if c.heedsDeadline {
		return Safely(ctx, f)
	}

	// A call that ignores its deadline goes on after Do has returned, and keeps its slot until it
	// ends.
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}

	done := make(chan error, 1)
	go func() {
		defer func() { <-c.slots }()
		done <- Safely(ctx, f)
	}()

	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
