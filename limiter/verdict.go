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

	verdict events.Verdict // once it is concluded

	pooled bool            // it is used again
	record *events.Request // memory for the next event, or nil
}

// recycle makes the course that of no request.
func (c *course) recycle() {
	c.charges.recycle()
	c.stopped, c.notQueued, c.waited, c.verdict = nil, nil, 0, 0
}

// conclude decides what became of a request that the store has answered, or that ended with err,
// and reports it.
func (c *course) conclude(ctx context.Context, err error) {
	if err != nil {
		c.err = err
		c.allowed, c.degraded = c.failsOpen(ctx, err), false
	}
	c.verdict = c.judge(ctx)

	if c.skipped != nil {
		c.logSkipped(ctx)
	}
	if err != nil {
		c.limiter.reportAs(ctx, err, c.undecidedBy())
	} else if c.local {
		c.limiter.reportFallback(ctx)
	}

	c.tell(ctx)
	if err != nil {
		c.drop()
	}
}

// judge decides what became of the request. It is asked once; all else reads the verdict.
func (c *course) judge(ctx context.Context) events.Verdict {
	if !c.allowed {
		return c.refusal(ctx)
	}
	if c.err != nil || c.asked < len(c.calls) {
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

// refusal is judge for a request that does not pass. Of several rules that refuse it, the one
// whose verdict lasts longest, which is the greatest, decides.
func (c *course) refusal(ctx context.Context) events.Verdict {
	switch {
	case c.err != nil && ctx.Err() == context.Canceled:
		return events.Canceled
	case c.err != nil:
		return events.FailedClosed
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
			v = max(v, c.refusalBy(i))
		}
	}
	return v
}

// refusalBy returns the verdict of a rule that refuses the request.
func (c *course) refusalBy(i int) events.Verdict {
	switch d := &c.out[i]; {
	case d.RetryAfter == core.Never && !c.ops[i].UpTo && !c.exceedsPart(i):
		return events.Impossible
	case d.Banned:
		return events.Banned
	}
	return events.Refused
}

// verdictOf returns the verdict of rule i, which follows from that on the request.
func (c *course) verdictOf(i int) events.Verdict {
	switch {
	case c.verdict == events.Allowed: // by every rule
		return events.Allowed
	case c.err != nil:
		return c.failureOf(i)
	case i >= c.asked:
		return events.FailedOpen
	case c.denied:
		return events.Denied
	}

	if c.out[i].Allowed {
		switch {
		case !c.verdict.Passes():
			return events.Overruled
		case c.calls[i].waited > 0:
			return events.Waited
		}
		return events.Allowed
	}

	switch action := c.calls[i].rule.OnLimit; {
	case action == Shadow:
		return events.ShadowRefused
	case action == Degrade:
		return events.Degraded
	case c.verdict == events.Canceled || c.verdict == events.QueueFull:
		return c.verdict
	}
	return c.refusalBy(i)
}

// failureOf is verdictOf where no rule was decided.
func (c *course) failureOf(i int) events.Verdict {
	switch {
	case ruleOf(c.err) != "": // another rule failed before the store was asked
		return events.Overruled
	case c.verdict == events.Canceled:
		return events.Canceled
	case c.calls[i].rule.failsClosed(&c.limiter.fallbacks):
		return events.FailedClosed
	}
	return events.FailedOpen
}

// undecidedBy returns what decided about a request in place of rules that were not decided.
func (c *course) undecidedBy() events.Mode {
	if c.verdict.Passes() {
		return events.PassesUndecided
	}
	return events.FailsUndecided
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
	by := c.undecidedBy()
	for i := range c.outside {
		if err := c.outside[i].err; err != nil {
			c.limiter.logFailure(ctx, err, by)
		}
	}
	if c.unlogged == nil {
		return
	}
	if c.asked == len(c.calls) {
		by = events.FallbackDecides
	}
	c.limiter.logFailure(ctx, c.unlogged, by)
}
