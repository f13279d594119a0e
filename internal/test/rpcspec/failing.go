package rpcspec

import (
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/failover"
	"github.com/headgate/headgate/store/memstore"
)

var failing = []spec{
	{"each rule says what happens when the store fails", failureModes},
	{"a shadow rule admits all calls when the store fails", shadowFails},
	{"a fallback decides while the store is away", fallbackDecides},
	{"a store that is bypassed sets RetryInfo", bypassed},
}

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

func failureModes(b *bench) {
	rule := func(failure limiter.FailureMode) limiter.Rule {
		r := b.rule(failure.String(), "1/10s fixed-window")
		r.OnStoreError = failure
		return r
	}
	open, closed, local := rule(limiter.FailOpen), rule(limiter.FailClosed), rule(limiter.FailLocal)
	closed.Key, local.Key = ifHas("X-Closed", closed.Key), ifHas("X-Local", local.Key)
	memory := memstore.MustNew(memstore.Options{Clock: b.clock.micros.Load})
	s := b.behind(failover.Options{Fallback: memory})
	b.serve(App{Limiter: b.over(s, limiter.Config{Headers: limiter.XRateLimit, Rules: []limiter.Rule{open, closed, local}})})
	b.store.broken.Store(true)
	left := map[string]string{"x-ratelimit-limit": "1", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1800000010"}
	b.steps(
		step{0, "", text("ok")},
		step{0, "", text("ok")},
		step{0, "x-closed: 1", unavailable()},
		step{0, "x-closed: 1\nx-local: 1", unavailable()},
		step{0, "x-local: 1", text("ok").with(left)},
		step{0, "x-local: 1", refusal("local", ten).with(left)},
	)
}

// ifHas returns key for calls with the metadata.
func ifHas(name string, key core.KeyFunc) core.KeyFunc {
	return func(r core.Request) (string, bool) {
		if len(r.Header(name)) == 0 {
			return "", false
		}
		return key(r)
	}
}

func shadowFails(b *bench) {
	dark := b.rule("dark", "1/10s fixed-window")
	dark.OnLimit, dark.OnStoreError = limiter.Shadow, limiter.FailClosed
	b.serve(App{Limiter: b.configured(limiter.Config{OnStoreError: limiter.FailClosed, Rules: []limiter.Rule{dark}})})
	b.store.broken.Store(true)
	b.steps(step{0, "", text("ok")})
}

func fallbackDecides(b *bench) {
	memory := memstore.MustNew(memstore.Options{Clock: b.clock.micros.Load})
	s := b.behind(failover.Options{Fallback: memory, Instances: func() int { return 2 }})
	b.serve(App{Limiter: b.over(s, limiter.Config{Rules: []limiter.Rule{b.rule("a", "6/10s fixed-window")}})})
	ok := text("ok")
	b.steps(
		step{0, "", ok.with(rate(0, 6, 5, 10))},
		step{0, "", ok.with(rate(0, 6, 4, 10))},
	)
	b.store.broken.Store(true)
	b.steps(
		step{0, "", ok.with(rate(0, 6, 0, 10))},
		step{3 * second, "", refusal("a", 7*second).with(rate(3, 6, 0, 7))},
		step{ten, "", ok.with(rate(10, 6, 2, 10))},
	)
}

func bypassed(b *bench) {
	s := b.behind(failover.Options{ProbeInterval: time.Minute})
	b.serve(App{Limiter: b.over(s, limiter.Config{OnStoreError: limiter.FailClosed, Rules: []limiter.Rule{b.rule("a", "6/10s fixed-window")}})})
	b.store.broken.Store(true)
	for range failover.DefaultFailures {
		b.steps(step{0, "", unavailable()})
	}
	got := b.ask("")
	if d := got.RetryAfter; got.Code != rpc.Unavailable || d < 30*second || d > time.Minute || d%second != 0 {
		b.Errorf("got\n%s", got)
	}
}
