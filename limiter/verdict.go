package limiter

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
)

// course is how one request went: its charges, whether it waited, and what became of it.
type course struct {
	charges

	stopped   error         // why the wait ended before its time
	notQueued error         // why no wait could begin
	waited    time.Duration // in all

	pooled bool            // it is used again
	record *events.Request // memory for the next event, or nil
}

// recycle makes the course that of no request.
func (c *course) recycle() {
	c.charges.recycle()
	c.stopped, c.notQueued, c.waited = nil, nil, 0
}

func (c *course) outcome() Outcome {
	switch {
	case c.allowed:
		return Pass
	case c.err != nil:
		return Failed
	case c.notQueued == ErrQueueFull:
		return QueueFull
	}
	return Refused
}

// fate returns what became of a request that not every rule has decided about.
func (c *course) fate() fate {
	if c.allowed {
		return passed
	}
	return turnedAway
}

// verdict returns what became of the request.
func (c *course) verdict(ctx context.Context) events.Verdict {
	switch {
	case c.err == nil && !c.allowed:
		return c.refusal()
	case !c.allowed && ctx.Err() == context.Canceled:
		return events.Canceled
	case !c.allowed:
		return events.FailedClosed
	case c.err != nil, c.asked < len(c.calls):
		return events.FailedOpen
	}

	shadow := false
	for i := range c.outside {
		if c.outside[i].err != nil {
			return events.FailedOpen
		}
		shadow = true
	}
	if c.degraded {
		return events.Degraded
	}
	for i := 0; i < c.asked && !shadow; i++ {
		shadow = !c.out[i].Allowed
	}

	switch {
	case shadow:
		return events.ShadowRefused
	case c.waited > 0:
		return events.Waited
	}
	return events.Allowed
}

// refusal returns why the request, about which there was no error, was refused.
func (c *course) refusal() events.Verdict {
	switch {
	case c.denied:
		return events.Denied
	case c.stopped != nil && !errors.Is(c.stopped, ErrClosed):
		return events.Canceled
	case c.notQueued == ErrQueueFull:
		return events.QueueFull
	}
	v := events.Refused
	for i := range c.asked {
		if c.violates(i) {
			v = max(v, c.refusalOf(i))
		}
	}
	return v
}

// refusalOf returns why rule i refused the request. The greatest verdict lasts longest.
func (c *course) refusalOf(i int) events.Verdict {
	switch d := &c.out[i]; {
	case d.RetryAfter == core.Never && !c.ops[i].UpTo && !c.exceedsPart(i):
		return events.Impossible
	case d.Banned:
		return events.Banned
	}
	return events.Refused
}

// verdictOf returns what rule i says of a request that was decided.
func (c *course) verdictOf(i int, all events.Verdict) events.Verdict {
	switch d, action := &c.out[i], c.calls[i].rule.OnLimit; {
	case c.denied:
		return events.Denied
	case d.Allowed && !all.Passes():
		return events.Overruled
	case d.Allowed && c.calls[i].waited > 0:
		return events.Waited
	case d.Allowed:
		return events.Allowed
	case action == Shadow:
		return events.ShadowRefused
	case action == Degrade:
		return events.Degraded
	case all == events.Canceled || all == events.QueueFull:
		return all
	}
	return c.refusalOf(i)
}

// conclude derives the outcome from err and the answer of the store, and reports it.
func (c *course) conclude(ctx context.Context, err error) {
	if err != nil {
		c.err = err
		c.allowed, c.degraded = c.failsOpen(ctx, err), false
	}
	if c.skipped != nil {
		c.logSkipped(ctx)
	}
	if err != nil {
		c.limiter.reportAs(ctx, err, c.fate())
	} else if c.local {
		c.limiter.reportFallback(ctx)
	}
	c.tell(ctx)
	if err != nil {
		c.drop()
	}
}

// failsOpen reports whether the request goes on although err kept all rules from
// deciding. It returns false if the client has left, because clients could otherwise
// avoid being counted by hanging up, and if err is about a single rule, because then
// skipRule did not accept it.
func (c *course) failsOpen(ctx context.Context, err error) bool {
	if ctx.Err() != nil || ruleOf(err) != "" {
		return false
	}
	for i := range c.asked {
		if c.calls[i].rule.failsClosed(&c.limiter.fallbacks) {
			return false
		}
	}
	return true
}

// logSkipped logs why rules were not decided, with what became of the request.
func (c *course) logSkipped(ctx context.Context) {
	f := c.fate()
	for i := range c.outside {
		if err := c.outside[i].err; err != nil {
			c.limiter.logFailure(ctx, err, f)
		}
	}
	if c.unlogged == nil {
		return
	}
	if c.asked == len(c.calls) {
		f = decidedLocally
	}
	c.limiter.logFailure(ctx, c.unlogged, f)
}
