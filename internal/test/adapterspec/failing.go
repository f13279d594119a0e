package adapterspec

import (
	"context"
	"strconv"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/failover"
	"github.com/headgate/headgate/store/memstore"
)

var failing = []spec{
	{"each rule says what happens when the store fails", failureModes},
	{"a shadow rule admits all requests when the store fails", shadowFails},
	{"a fallback decides while the store is away", fallbackDecides},
	{"a store that is bypassed says when to come again", bypassed},
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

// memory returns a store for a fallback.
func (b *bench) memory() core.Store {
	return memstore.MustNew(memstore.Options{Clock: b.clock.micros.Load})
}

func failureModes(b *bench) {
	rule := func(failure limiter.FailureMode) limiter.Rule {
		r := b.rule(failure.String(), "1/10s fixed-window")
		r.OnStoreError = failure
		return r
	}

	// Every request meets the rule open, and the other two by its fields.
	open, closed, local := rule(limiter.FailOpen), rule(limiter.FailClosed), rule(limiter.FailLocal)
	closed.Key, local.Key = ifHas("X-Closed", closed.Key), ifHas("X-Local", local.Key)

	s := b.behind(failover.Options{Fallback: b.memory()})
	rules := []limiter.Rule{open, closed, local}
	b.serve(app{limiter: b.over(s, limiter.Config{Headers: limiter.XRateLimit, Rules: rules})})
	b.store.broken.Store(true)

	left := map[string]string{"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1800000010"}
	b.steps(
		step{0, "", b.passed("ok")},
		step{0, "", b.passed("ok")},
		step{0, "X-Closed: 1", b.failure(second)},
		step{0, "X-Closed: 1\nX-Local: 1", b.failure(second)},
		step{0, "X-Local: 1", b.passed("ok").with(left)},
		step{0, "X-Local: 1", b.refusal("local", ten).with(left)},
		step{0, "X-Closed: 1", b.failure(second)},
	)
}

// ifHas returns key for requests with the field.
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
	b.serve(app{limiter: b.configured(limiter.Config{OnStoreError: limiter.FailClosed, Rules: []limiter.Rule{dark}})})
	b.store.broken.Store(true)
	b.steps(step{0, "", b.passed("ok")})
}

func fallbackDecides(b *bench) {
	s := b.behind(failover.Options{Fallback: b.memory(), Instances: func() int { return 2 }})
	b.serve(app{limiter: b.over(s, limiter.Config{Rules: []limiter.Rule{b.rule("a", "6/10s fixed-window")}})})
	ok := b.passed("ok")
	b.steps(
		step{0, "", ok.with(rate(0, 6, 5, 10))},
		step{0, "", ok.with(rate(0, 6, 4, 10))},
	)

	// The fallback has half of the limit for this instance, and begins with what was left.
	b.store.broken.Store(true)
	b.steps(
		step{0, "", ok.with(rate(0, 6, 0, 10))},
		step{3 * second, "", b.refusal("a", 7*second).with(rate(3, 6, 0, 7))},
		step{ten, "", ok.with(rate(10, 6, 2, 10))},
	)
}

func bypassed(b *bench) {
	s := b.behind(failover.Options{ProbeInterval: time.Minute})
	rules := []limiter.Rule{b.rule("a", "6/10s fixed-window")}
	b.serve(app{limiter: b.over(s, limiter.Config{OnStoreError: limiter.FailClosed, Rules: rules})})
	b.store.broken.Store(true)
	for range failover.DefaultFailures {
		b.steps(step{0, "", b.failure(second)})
	}

	// The next probe comes at random after half an interval to a whole one.
	got := b.send("")
	after, err := strconv.Atoi(got.Header["Retry-After"])
	if err != nil || after < 30 || after > 60 {
		b.Errorf("Retry-After is %q", got.Header["Retry-After"])
	}
	b.equal(got, b.failure(time.Duration(after)*second), "a request past the store")

	out := make([]core.Decision, 1)
	if s.State() != failover.Open || s.Apply(context.Background(), []core.Op{{}}, out) == nil {
		b.Error("the store is not bypassed")
	}
}
