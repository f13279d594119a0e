package httpspec

import (
	"context"
	"log/slog"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/failover"
	"github.com/headgate/headgate/store/memstore"
)

var failing = []spec{
	{"each rule says what happens when the store fails", policies},
	{"a shadow rule admits all requests when the store fails", shadowFails},
	{"a fallback decides while the store is away", fallbackDecides},
	{"a store that is bypassed sets Retry-After", bypassed},
}

var silent = slog.New(slog.DiscardHandler)

// behind returns a store over that of the bench, on its clock.
func (b *bench) behind(o failover.Options) *failover.Store {
	b.Helper()
	o.Logger = silent
	s, err := failover.New(b.store, o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

// over returns a limiter on another store than that of the bench.
func (b *bench) over(s core.Store, c limiter.Config) *limiter.Limiter {
	b.Helper()
	c.Store, c.Logger = s, silent
	l, err := limiter.New(c)
	if err != nil {
		b.Fatal(err)
	}
	return l
}

func policies(b *bench) {
	rule := func(failure limiter.FailureMode) limiter.Rule {
		r := b.rule(failure.String(), "1/10s fixed-window")
		r.OnStoreError = failure
		return r
	}
	open, closed, local := rule(limiter.FailOpen), rule(limiter.FailClosed), rule(limiter.FailLocal)
	// All meet the rule open, POST also closed, DELETE local, and PUT all three.
	closed.Key = unless(closed.Key, "GET", "DELETE")
	local.Key = unless(local.Key, "GET", "POST")
	memory := memstore.MustNew(memstore.Options{Clock: b.clock.micros.Load})
	s := b.behind(failover.Options{Fallback: memory})
	b.serve(App{Limiter: b.over(s, limiter.Config{Headers: limiter.XRateLimit, Rules: []limiter.Rule{open, closed, local}})})
	b.store.broken.Store(true)
	left := map[string]string{"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1800000010"}
	b.steps(
		step{0, "GET /", Text(200, "ok")},
		step{0, "GET /", Text(200, "ok")},
		step{0, "POST /", failure()},
		step{0, "PUT /", failure()},
		step{0, "DELETE /", Text(200, "ok").with(left)},
		step{0, "DELETE /", refusal("local", 10).with(left)},
		step{0, "POST /", failure()},
	)
}

// unless returns key for requests of methods other than these.
func unless(key core.KeyFunc, methods ...string) core.KeyFunc {
	return func(r core.Request) (string, bool) {
		for _, m := range methods {
			if r.Method() == m {
				return "", false
			}
		}
		return key(r)
	}
}

func shadowFails(b *bench) {
	dark := b.rule("dark", "1/10s fixed-window")
	dark.OnLimit, dark.OnStoreError = limiter.Shadow, limiter.FailClosed
	b.serve(App{Limiter: b.configured(limiter.Config{OnStoreError: limiter.FailClosed, Rules: []limiter.Rule{dark}})})
	b.store.broken.Store(true)
	b.steps(step{0, "GET /", Text(200, "ok")})
}

func fallbackDecides(b *bench) {
	memory := memstore.MustNew(memstore.Options{Clock: b.clock.micros.Load})
	s := b.behind(failover.Options{Fallback: memory, Instances: func() int { return 2 }})
	b.serve(App{Limiter: b.over(s, limiter.Config{Rules: []limiter.Rule{b.rule("a", "6/10s fixed-window")}})})
	ok, second := Text(200, "ok"), time.Second
	b.steps(
		step{0, "GET /", ok.with(rate(0, 6, 5, 10))},
		step{0, "GET /", ok.with(rate(0, 6, 4, 10))},
	)
	b.store.broken.Store(true)
	b.steps(
		step{0, "GET /", ok.with(rate(0, 6, 0, 10))},
		step{3 * second, "GET /", refusal("a", 7).with(rate(3, 6, 0, 7))},
		step{10 * second, "GET /", ok.with(rate(10, 6, 2, 10))},
	)
}

func bypassed(b *bench) {
	s := b.behind(failover.Options{ProbeInterval: time.Minute})
	b.serve(App{Limiter: b.over(s, limiter.Config{OnStoreError: limiter.FailClosed, Rules: []limiter.Rule{b.rule("a", "6/10s fixed-window")}})})
	b.store.broken.Store(true)
	for range failover.DefaultFailures {
		b.steps(step{0, "GET /", failure()})
	}
	got := b.ask("GET /")
	if after := got.Header["Retry-After"]; got.Status != 503 || len(after) != 2 || after < "30" || after > "60" {
		b.Errorf("%d, Retry-After %q", got.Status, after)
	}
	out := make([]core.Decision, 1)
	if s.State() != failover.Open || s.Apply(context.Background(), []core.Op{{}}, out) == nil {
		b.Error("the store is not bypassed")
	}
}
