package rpc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Defaults of [Retry], for fields that are 0.
const (
	DefaultMaxWait     = 10 * time.Second
	DefaultMaxAttempts = 5
)

// Retry says how a client repeats calls that a server has refused for a while.
type Retry struct {
	// MaxWait is the longest time that one call waits, in all.
	MaxWait time.Duration

	// MaxAttempts is how many times one call is sent, the first included.
	MaxAttempts int

	jitter func(max time.Duration) time.Duration // nil is random
}

// Complete puts the defaults in, or returns an error that joins all mistakes.
func (r Retry) Complete() (Retry, error) {
	var errs []error
	if r.MaxWait < 0 {
		errs = append(errs, fmt.Errorf("MaxWait: %s is negative", r.MaxWait))
	}
	if r.MaxAttempts < 0 {
		errs = append(errs, fmt.Errorf("MaxAttempts: %d is negative", r.MaxAttempts))
	}

	if r.MaxWait == 0 {
		r.MaxWait = DefaultMaxWait
	}
	if r.MaxAttempts == 0 {
		r.MaxAttempts = DefaultMaxAttempts
	}
	if r.jitter == nil {
		r.jitter = func(max time.Duration) time.Duration { return rand.N(max + 1) }
	}
	return r, errors.Join(errs...)
}

// Do calls until the error is nil or says no delay, or until one more wait is not allowed.
// delayOf returns the delay that an error asks for. Each wait is that delay and up to a
// tenth more, so that clients which were refused together do not come back together. Do
// returns the last error, or that of ctx if it ends during a wait.
func (r Retry) Do(ctx context.Context, call func() error, delayOf func(error) (time.Duration, bool)) error {
	remaining := r.MaxWait
	for attempt := 1; ; attempt++ {
		err := call()
		if err == nil || attempt >= r.MaxAttempts {
			return err
		}

		delay, ok := delayOf(err)
		if !ok {
			return err
		}

		wait, ok := r.wait(ctx, max(0, delay), remaining)
		if !ok {
			return err
		}

		// What is spent is the wait that was chosen, with its jitter, and not the time of the
		// calls.
		remaining -= wait
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// wait returns the delay with jitter. ok is false if the delay is longer than longest or ends
// after the deadline of ctx.
func (r Retry) wait(ctx context.Context, delay, longest time.Duration) (wait time.Duration, ok bool) {
	if deadline, ok := ctx.Deadline(); ok {
		longest = min(longest, time.Until(deadline)-1) // a call at the very deadline would fail
	}
	if delay > longest {
		return 0, false
	}
	return delay + r.jitter(min(delay/10, longest-delay)), true
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
