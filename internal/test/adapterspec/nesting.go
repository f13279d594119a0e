package adapterspec

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/findings"
)

var nesting = []spec{
	{"a limiter around another", nested},
	{"the headers of nested limiters show the most exhausted rule", merged},
	{"different limiters around one another all count", interleaved},
	{"a limiter that is met twice counts once", twice},
	{"a limiter that is met three times warns once", thrice},
	{"a limiter that is met once on each request does not warn", onceEach},
	{"a limiter that skips a request outside counts it inside", skippedOutside},
}

func nested(b *bench) {
	outer := b.rule("a", "1/10s fixed-window")
	outer.OnLimit = limiter.Degrade
	var calls atomic.Int64
	b.serve(app{around: []app{{limiter: b.limiter(outer)}}, limiter: b.one(), handler: func(x turn) error {
		calls.Add(1)
		return sayDegraded(x)
	}})

	headers := limits(1, 0, 10, `"a";q=1;w=10, "lease";q=1;qu="concurrent-requests"`, `"a";r=0;t=10, "lease";r=0`)

	// The lease of the inner one shows beside the outer one's units.
	for _, want := range []string{"good", "cheap"} {
		b.steps(step{0, "", b.passed(want).with(headers)})
		b.released()
	}
	if calls.Load() != 2 {
		b.Errorf("the handler was called %d times", calls.Load())
	}
}

// merged has a limiter for the service around one for the route.
func merged(b *bench) {
	b.serve(app{around: []app{{limiter: b.limiter(b.rule("service", "10/1m fixed-window"))}},
		limiter: b.limiter(b.rule("route", "3/10s fixed-window"))})
	headers := func(quota, left, reset int, list string) map[string]string {
		return limits(quota, left, reset, `"service";q=10;w=60, "route";q=3;w=10`, list)
	}

	// X-RateLimit states the rule with the fewest units left, wherever it stands.
	ok := b.passed("ok")
	b.steps(
		step{0, "", ok.with(headers(3, 2, 10, `"route";r=2;t=10, "service";r=9;t=60`))},
		step{0, "", ok.with(headers(3, 1, 10, `"route";r=1;t=10, "service";r=8;t=60`))},
		step{0, "", ok.with(headers(3, 0, 10, `"route";r=0;t=10, "service";r=7;t=60`))},
		step{0, "", b.refusal("route", ten).with(headers(3, 0, 10, `"route";r=0;t=10, "service";r=6;t=60`))},
		step{ten, "", ok.with(headers(10, 5, 60, `"service";r=5;t=50, "route";r=2;t=10`))},
		step{2 * ten, "", ok.with(headers(10, 4, 60, `"service";r=4;t=40, "route";r=2;t=10`))},
	)
}

// interleaved has three limiters, two of which are met several times.
func interleaved(b *bench) {
	for name, style := range map[string]limiter.HeaderStyle{"default": 0, "NoHeaders": limiter.NoHeaders} {
		b.row(name, func(b *bench) {
			first := []limiter.Rule{b.rule("one", "5/1m fixed-window")}
			one := b.configured(limiter.Config{Rules: first, Headers: style})
			two := b.limiter(b.rule("two", "9/1m fixed-window"))
			three := b.limiter(b.rule("three", "7/1m fixed-window"))
			var around []app
			for _, l := range []*limiter.Limiter{one, two, one, three, two, three} {
				around = append(around, app{limiter: l})
			}
			b.serve(app{around: around, limiter: one})

			// Each counts the request once, wherever it stands.
			b.send("")
			b.wantLeft(one, 4)
			b.wantLeft(two, 8)
			b.wantLeft(three, 6)
		})
	}
}

func twice(b *bench) {
	statuses := make(chan int, 10)
	r := b.rule("a", "4/10s fixed-window")
	r.RefundIf = func(status int) bool {
		statuses <- status
		return false
	}

	l := b.limiter(r)
	b.serve(app{around: []app{{limiter: l}}, limiter: l})
	b.steps(
		step{0, "", b.passed("ok").with(rate(0, 4, 3, 10))},
		step{0, "", b.passed("ok").with(rate(0, 4, 2, 10))},
	)
	for i, f := range b.forms() {
		b.equal(f.ask(""), f.as(b.passed("ok").with(rate(0, 4, 1-i, 10))), "%s", f.name)
	}
	b.steps(step{0, "", b.refusal("a", ten).with(rate(0, 4, 0, 10))})

	// Of the limiter's two places one settles, and none for a refusal.
	if n := len(statuses); n != 4 {
		b.Errorf("RefundIf was called %d times, want 4", n)
	}
}

func thrice(b *bench) {
	// The limiter knows a request again by its headers, its leases or what it keeps of it.
	hard, dark := b.rule("a", "5/10s fixed-window"), b.rule("a", "5/10s fixed-window")
	dark.OnLimit = limiter.Shadow
	lease, refunding := b.rule("a", "5 concurrent ttl=1m"), b.rule("a", "5 concurrent ttl=1m")
	refunding.RefundIf = func(int) bool { return false }

	for name, row := range map[string]struct {
		config limiter.Config
		broken bool
	}{
		"default":              {config: limiter.Config{Rules: []limiter.Rule{hard}}},
		"no headers":           {config: limiter.Config{Rules: []limiter.Rule{hard}, Headers: limiter.NoHeaders}},
		"shadow":               {config: limiter.Config{Rules: []limiter.Rule{dark}}},
		"leases":               {config: limiter.Config{Rules: []limiter.Rule{lease}}},
		"leases with RefundIf": {config: limiter.Config{Rules: []limiter.Rule{refunding}}},
		"failing open":         {config: limiter.Config{Rules: []limiter.Rule{hard}}, broken: true},
	} {
		b.row(name, func(b *bench) { meetThrice(b, row.config, row.broken) })
	}
}

func meetThrice(b *bench, c limiter.Config, broken bool) {
	var calls, failures atomic.Int64
	log := &journal{}
	c.Logger = log.logger()
	c.OnError = func(context.Context, error) { failures.Add(1) }
	l := b.configured(c)
	b.serve(app{limiter: l, around: []app{{limiter: l}, {limiter: l}}, handler: func(x turn) error {
		calls.Add(1)
		if !broken {
			b.wantLeft(l, 4)
		}
		return ok(x)
	}})

	b.store.broken.Store(broken)
	b.send("")

	// A store that fails is asked once too.
	wantFailures := int64(0)
	if broken {
		wantFailures = 1
	}
	warned := strings.Count(log.String(), "code="+findings.Twice)
	if calls.Load() != 1 || failures.Load() != wantFailures || warned != 1 {
		b.Errorf("%d calls, %d failures, logged\n%s", calls.Load(), failures.Load(), log)
	}
}

// onceEach asks over one connection, so that a framework that uses the memory of
// a request again is seen to clear it.
func onceEach(b *bench) {
	log := &journal{}
	l := b.configured(limiter.Config{Rules: []limiter.Rule{b.rule("a", "5/10s fixed-window")}, Logger: log.logger()})
	b.serve(app{limiter: l})
	for range 4 {
		b.send("")
	}

	b.wantLeft(l, 1)
	if text := log.String(); text != "" {
		b.Errorf("logged\n%s", text)
	}
}

func skippedOutside(b *bench) {
	l := b.limiter(b.rule("a", "1/10s fixed-window"))
	b.serve(app{limiter: l, around: []app{{limiter: l, skip: true}}})
	b.steps(
		step{0, "X-Skip: 1", b.passed("ok").with(rate(0, 1, 0, 10))},
		step{0, "X-Skip: 1", b.refusal("a", ten).with(rate(0, 1, 0, 10))},
	)
}
