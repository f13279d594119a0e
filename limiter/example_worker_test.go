package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// An export writes as many rows as it may now.
func ExampleLimiter_TakeUpTo() {
	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{
		{Name: "minute", Limit: core.MustParseLimit("50/1m fixed-window")},
		{Name: "day", Limit: core.MustParseLimit("60/24h")},
	}})
	for {
		n, err := l.TakeUpTo(context.Background(), "export", 40)
		if err != nil {
			log.Fatal(err)
		}
		if n == 0 {
			break
		}
		fmt.Println("rows:", n)
	}
	// Output:
	// rows: 40
	// rows: 10
}

// A worker waits for its turn, and learns why it did not get one.
func ExampleLimiter_Wait() {
	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{{Name: "mails", Limit: core.MustParseLimit("1/1h")}}})
	// The second mail would have to wait for an hour, which is longer than the context lasts.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	fmt.Println(l.Wait(ctx, "mail", 1))
	if err := l.Wait(ctx, "mail", 1); err != nil {
		var why *limiter.WaitError
		if errors.As(err, &why) {
			fmt.Println(errors.Is(err, limiter.ErrLimited), why.RetryAfter.Round(time.Minute), why.Rules)
		}
	}
	// Output:
	// <nil>
	// true 1h0m0s [mails]
}

// A reservation books a slot, and gives it back if it is not used.
func ExampleLimiter_Reserve() {
	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{{Limit: core.MustParseLimit("1/1m")}}})
	ctx := context.Background()
	if _, err := l.Allow(ctx, "mail", 1); err != nil {
		log.Fatal(err)
	}

	r, err := l.Reserve(ctx, "mail", 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Delay() > 0)
	if err := r.Cancel(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: true
}

// Two jobs share a printer: the second waits until the first has released it.
func ExampleLimiter_TakeWithin() {
	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{{Limit: core.MustParseLimit("1 concurrent ttl=30s")}}})
	ctx := context.Background()

	first, err := l.TakeWithin(ctx, "printer", 1, time.Minute)
	if err != nil || !first.Allowed() {
		log.Fatal(err)
	}
	go func() {
		fmt.Println("the first job")
		if err := first.Release(ctx); err != nil {
			log.Print(err)
		}
	}()

	second, err := l.TakeWithin(ctx, "printer", 1, time.Minute)
	if err != nil || !second.Allowed() {
		log.Fatal(err)
	}
	fmt.Println("the second job")
	if err := second.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// the first job
	// the second job
}
