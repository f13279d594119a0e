package rpcspec

import (
	"context"
	"strconv"
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
	{"a limiter that is met once on each call does not warn", onceEach},
	{"a limiter that skips a call outside counts it inside", skippedOutside},
}

func nested(b *bench) {
	outer := b.rule("a", "1/10s fixed-window")
	outer.OnLimit = limiter.Degrade
	inner := b.rule("lease", "1 concurrent ttl=1m")
	b.serve(App{Around: []App{{Limiter: b.limiter(outer)}}, Limiter: b.limiter(inner), Say: sayDegraded})
	pairs := rate(0, 1, 0, 10)
	pairs["ratelimit-policy"] = `"a";q=1;w=10, "lease";q=1;qu="concurrent-requests"`
	pairs["ratelimit"] = `"a";r=0;t=10, "lease";r=0`
	for _, want := range []string{"good", "cheap"} {
		b.steps(step{0, "", text(want).with(pairs)})
		b.released()
	}
}

// merged has a limiter for the service around one for the method.
func merged(b *bench) {
	b.serve(App{Around: []App{{Limiter: b.limiter(b.rule("service", "10/1m fixed-window"))}},
		Limiter: b.limiter(b.rule("route", "3/10s fixed-window"))})
	pairs := func(limit, left, reset int, list string) map[string]string {
		return map[string]string{
			"x-ratelimit-limit":     strconv.Itoa(limit),
			"x-ratelimit-remaining": strconv.Itoa(left),
			"x-ratelimit-reset":     strconv.Itoa(epoch + reset),
			"ratelimit-policy":      `"service";q=10;w=60, "route";q=3;w=10`,
			"ratelimit":             list,
		}
	}
	ok := text("ok")
	b.steps(
		step{0, "", ok.with(pairs(3, 2, 10, `"route";r=2;t=10, "service";r=9;t=60`))},
		step{0, "", ok.with(pairs(3, 1, 10, `"route";r=1;t=10, "service";r=8;t=60`))},
		step{0, "", ok.with(pairs(3, 0, 10, `"route";r=0;t=10, "service";r=7;t=60`))},
		step{0, "", refusal("route", ten).with(pairs(3, 0, 10, `"route";r=0;t=10, "service";r=6;t=60`))},
		step{ten, "", ok.with(pairs(10, 5, 60, `"service";r=5;t=50, "route";r=2;t=10`))},
		step{2 * ten, "", ok.with(pairs(10, 4, 60, `"service";r=4;t=40, "route";r=2;t=10`))},
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
	b.steps(step{0, "", text("ok").with(rate(0, 2, 1, 10))})
	s := b.chat(b.Context(), "")
	b.say(s, "one")
	if err := s.CloseSend(); err != nil {
		b.Error(err)
	}
	b.equal(s.End(), text("").with(rate(0, 2, 0, 10)), "a stream")
	b.steps(step{0, "", refusal("a", ten).with(rate(0, 2, 0, 10))})
	if n := len(statuses); n != 2 {
		b.Errorf("RefundIf was called %d times, want 2", n)
	}
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
			b.ask("")
			b.wantLeft(one, 4)
			b.wantLeft(two, 8)
			b.wantLeft(three, 6)
		})
	}
}

func thrice(b *bench) {
	hard, dark, lease := b.rule("a", "5/10s fixed-window"), b.rule("a", "5/10s fixed-window"), b.rule("a", "5 concurrent ttl=1m")
	dark.OnLimit = limiter.Shadow
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
	b.serve(App{Limiter: l, Around: []App{{Limiter: l}, {Limiter: l}}, Say: func(_ context.Context, text string) (string, error) {
		calls.Add(1)
		if !broken {
			b.wantLeft(l, 4)
		}
		return text, nil
	}})
	b.store.broken.Store(broken)
	b.ask("")
	wantFailures := int64(0)
	if broken {
		wantFailures = 1
	}
	warned := strings.Count(log.String(), "code="+findings.Twice)
	if calls.Load() != 1 || failures.Load() != wantFailures || warned != 1 {
		b.Errorf("%d calls, %d failures, logged\n%s", calls.Load(), failures.Load(), log)
	}
}

func onceEach(b *bench) {
	log := &journal{}
	l := b.configured(limiter.Config{Rules: []limiter.Rule{b.rule("a", "5/10s fixed-window")}, Logger: log.logger()})
	b.serve(App{Limiter: l})
	for range 4 {
		b.ask("")
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
		step{0, "x-skip: 1", text("ok").with(rate(0, 1, 0, 10))},
		step{0, "x-skip: 1", refusal("a", ten).with(rate(0, 1, 0, 10))},
	)
}
