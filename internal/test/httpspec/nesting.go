package httpspec

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/findings"
)

var nesting = []spec{
	{"a limiter around another", nested},
	{"the headers of nested limiters show the most exhausted rule", merged},
	{"different limiters around one another all count", interleaved},
	{"a limiter that is met twice counts once", twice},
	{"a limiter that is met twice has its fallback answer", twiceDegraded},
	{"a limiter that is met three times warns once", thrice},
	{"a limiter that is met once on each request does not warn", onceEach},
	{"a limiter that skips a request outside counts it inside", skippedOutside},
}

func nested(b *bench) {
	outer := b.rule("a", "1/10s fixed-window")
	outer.OnLimit = limiter.Degrade
	inner := b.rule("lease", "1 concurrent ttl=1m")
	var calls atomic.Int64
	b.serve(App{Around: []App{{Limiter: b.limiter(outer)}}, Limiter: b.limiter(inner), Handler: func(x Exchange) error {
		calls.Add(1)
		return replyDegraded(x)
	}})
	headers := rate(0, 1, 0, 10)
	headers["Ratelimit-Policy"] = `"a";q=1;w=10, "lease";q=1;qu="concurrent-requests"`
	headers["Ratelimit"] = `"a";r=0;t=10, "lease";r=0`
	b.served(
		step{0, "GET /", Text(200, "good").with(headers)},
		step{0, "GET /", Text(200, "cheap").with(headers)},
	)
	if calls.Load() != 2 {
		b.Errorf("the handler was called %d times", calls.Load())
	}
}

// merged has a limiter for the service around one for the route.
func merged(b *bench) {
	b.serve(App{Around: []App{{Limiter: b.limiter(b.rule("service", "10/1m fixed-window"))}},
		Limiter: b.limiter(b.rule("route", "3/10s fixed-window"))})
	headers := func(limit, left, reset int, list string) map[string]string {
		return map[string]string{
			"X-Ratelimit-Limit":     strconv.Itoa(limit),
			"X-Ratelimit-Remaining": strconv.Itoa(left),
			"X-Ratelimit-Reset":     strconv.Itoa(epoch + reset),
			"Ratelimit-Policy":      `"service";q=10;w=60, "route";q=3;w=10`,
			"Ratelimit":             list,
		}
	}
	ok, second := Text(200, "ok"), time.Second
	b.steps(
		step{0, "GET /", ok.with(headers(3, 2, 10, `"route";r=2;t=10, "service";r=9;t=60`))},
		step{0, "GET /", ok.with(headers(3, 1, 10, `"route";r=1;t=10, "service";r=8;t=60`))},
		step{0, "GET /", ok.with(headers(3, 0, 10, `"route";r=0;t=10, "service";r=7;t=60`))},
		step{0, "GET /", refusal("route", 10).with(headers(3, 0, 10, `"route";r=0;t=10, "service";r=6;t=60`))},
		step{10 * second, "GET /", ok.with(headers(10, 5, 60, `"service";r=5;t=50, "route";r=2;t=10`))},
		step{20 * second, "GET /", ok.with(headers(10, 4, 60, `"service";r=4;t=40, "route";r=2;t=10`))},
	)
}

func twice(b *bench) {
	statuses := make(chan int, 10)
	r := b.rule("a", "2/10s fixed-window")
	r.RefundIf = func(status int) bool {
		statuses <- status
		return false
	}
	l := b.limiter(r)
	b.serve(App{Around: []App{{Limiter: l}}, Limiter: l})
	b.steps(
		step{0, "GET /", Text(200, "ok").with(rate(0, 2, 1, 10))},
		step{0, "GET /", Text(200, "ok").with(rate(0, 2, 0, 10))},
		step{0, "GET /", refusal("a", 10).with(rate(0, 2, 0, 10))},
	)
	if n := len(statuses); n != 2 {
		b.Errorf("RefundIf was called %d times, want 2", n)
	}
}

func twiceDegraded(b *bench) {
	soft := b.rule("a", "1/10s fixed-window")
	soft.OnLimit = limiter.Degrade
	l := b.limiter(soft)
	b.serve(App{Around: []App{{Limiter: l}}, Limiter: l, Degraded: func(x Exchange) error { return x.Reply(203, "from the cache") }})
	b.steps(
		step{0, "GET /", Text(200, "ok").with(rate(0, 1, 0, 10))},
		step{0, "GET /", Text(203, "from the cache").with(rate(0, 1, 0, 10))},
		step{10 * time.Second, "GET /", Text(200, "ok").with(rate(10, 1, 0, 10))},
	)
}

// interleaved has three limiters, two of which are met several times.
func interleaved(b *bench) {
	for name, style := range map[string]limiter.HeaderStyle{"default": 0, "NoHeaders": limiter.NoHeaders} {
		b.row(name, func(b *bench) {
			one := b.configured(limiter.Config{Rules: []limiter.Rule{b.rule("one", "5/1m fixed-window")}, Headers: style})
			two, three := b.limiter(b.rule("two", "9/1m fixed-window")), b.limiter(b.rule("three", "7/1m fixed-window"))
			b.serve(App{
				Around:  []App{{Limiter: one}, {Limiter: two}, {Limiter: one}, {Limiter: three}, {Limiter: two}, {Limiter: three}},
				Limiter: one,
			})
			b.ask("GET /")
			b.wantLeft(one, 4)
			b.wantLeft(two, 8)
			b.wantLeft(three, 6)
		})
	}
}

func thrice(b *bench) {
	hard, dark, lease := b.rule("a", "5/10s fixed-window"), b.rule("a", "5/10s fixed-window"), b.rule("a", "5 concurrent ttl=1m")
	dark.OnLimit = limiter.Shadow
	lease.RefundIf = func(int) bool { return false }
	for name, row := range map[string]struct {
		config limiter.Config
		broken bool
	}{
		"default":      {config: limiter.Config{Rules: []limiter.Rule{hard}}},
		"no headers":   {config: limiter.Config{Rules: []limiter.Rule{hard}, Headers: limiter.NoHeaders}},
		"shadow":       {config: limiter.Config{Rules: []limiter.Rule{dark}}},
		"leases":       {config: limiter.Config{Rules: []limiter.Rule{lease}}},
		"failing open": {config: limiter.Config{Rules: []limiter.Rule{hard}}, broken: true},
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
	b.serve(App{Limiter: l, Around: []App{{Limiter: l}, {Limiter: l}}, Handler: func(x Exchange) error {
		calls.Add(1)
		if !broken {
			b.wantLeft(l, 4)
		}
		return ok(x)
	}})
	b.store.broken.Store(broken)
	b.ask("GET /")
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
	b.serve(App{Limiter: l})
	for range 4 {
		b.ask("GET /")
	}
	b.wantLeft(l, 1)
	if text := log.String(); text != "" {
		b.Errorf("logged\n%s", text)
	}
}

func skippedOutside(b *bench) {
	l := b.limiter(b.rule("a", "1/10s fixed-window"))
	b.serve(App{Limiter: l, Around: []App{{Limiter: l, Skip: true}}})
	b.steps(
		step{0, "GET /\nX-Skip: 1", Text(200, "ok").with(rate(0, 1, 0, 10))},
		step{0, "GET /\nX-Skip: 1", refusal("a", 10).with(rate(0, 1, 0, 10))},
	)
}
