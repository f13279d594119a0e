package adapterspec

import (
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

var limiting = []spec{
	{"a stream of requests over the limit gets the same answers everywhere", overTheLimit},
	{"a client that waits as it was asked to is admitted", retryAfter},
	{"the scarcer of two rules decides and no unit is taken of the other", twoRules},
	{"every preset of headers", presets},
	{"a shadow rule does not change answers", shadow},
	{"over a degrade rule the context reports it", degraded},
	{"a key that is refused too often is banned, and let in again", banned},
}

func overTheLimit(b *bench) {
	var calls atomic.Int64
	b.serve(app{limiter: b.limiter(b.rule("a", "3/10s fixed-window")), handler: func(x turn) error {
		calls.Add(1)
		return ok(x)
	}})

	passes := b.passed("ok")
	b.steps(
		step{0, "", passes.with(rate(0, 3, 2, 10))},
		step{1 * second, "", passes.with(rate(1, 3, 1, 9))},
		step{1 * second, "", passes.with(rate(1, 3, 0, 9))},
		step{1 * second, "", b.refusal("a", 9*second).with(rate(1, 3, 0, 9))},
		step{8 * second, "", b.refusal("a", 2*second).with(rate(8, 3, 0, 2))},
		step{9 * second, "", b.refusal("a", 1*second).with(rate(9, 3, 0, 1))},
		step{10 * second, "", passes.with(rate(10, 3, 2, 10))},
	)

	// Refused requests do not reach the handler.
	if n := calls.Load(); n != 4 {
		b.Errorf("the handler was called %d times, not 4", n)
	}
}

func retryAfter(b *bench) {
	b.serve(app{limiter: b.limiter(b.rule("a", "1/10s fixed-window"))})
	b.steps(
		step{0, "", b.passed("ok").with(rate(0, 1, 0, 10))},
		step{3 * second, "", b.refusal("a", 7*second).with(rate(3, 1, 0, 7))},
		step{ten - time.Microsecond, "", b.refusal("a", time.Microsecond).with(rate(9, 1, 0, 1))},
		step{ten, "", b.passed("ok").with(rate(10, 1, 0, 10))},
	)
}

func twoRules(b *bench) {
	b.serve(app{limiter: b.limiter(b.rule("a", "9/10s fixed-window"), b.rule("b", "1/1h fixed-window"))})
	headers := func(list string) map[string]string {
		return limits(1, 0, 3600, `"a";q=9;w=10, "b";q=1;w=3600`, list)
	}
	b.steps(
		step{0, "", b.passed("ok").with(headers(`"b";r=0;t=3600, "a";r=8;t=10`))},
		step{0, "", b.refusal("b", time.Hour).with(headers(`"b";r=0;t=3600, "a";r=8;t=10`))},
		step{ten, "", b.refusal("b", 3590*second).with(headers(`"b";r=0;t=3590, "a";r=9;t=0`))},
	)
}

func presets(b *bench) {
	x := map[string]string{"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1800000010"}
	delta := map[string]string{"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "10"}
	draft := map[string]string{"Ratelimit-Policy": `"a";q=1;w=10`, "Ratelimit": `"a";r=0;t=10`}
	own := func([]limiter.RuleDecision) []limiter.Header { return []limiter.Header{{Name: "X-Own", Value: "a, b"}} }
	ownOnly := limiter.Config{Headers: limiter.NoHeaders, CustomHeaders: own}

	for _, row := range []struct {
		name   string
		config limiter.Config
		want   map[string]string
	}{
		{"XRateLimit", limiter.Config{Headers: limiter.XRateLimit}, x},
		{"XRateLimitDelta", limiter.Config{Headers: limiter.XRateLimitDelta}, delta},
		{"Draft8", limiter.Config{Headers: limiter.Draft8}, draft},
		{"NoHeaders", limiter.Config{Headers: limiter.NoHeaders}, nil},
		{"CustomHeaders", ownOnly, map[string]string{"X-Own": "a, b"}},
	} {
		// A passing answer and a refusal have the same headers about limits.
		b.row(row.name, func(b *bench) {
			row.config.Rules = []limiter.Rule{b.rule("a", "1/10s fixed-window")}
			b.serve(app{limiter: b.configured(row.config)})
			b.steps(
				step{0, "", b.passed("ok").with(row.want)},
				step{0, "", b.refusal("a", ten).with(row.want)},
			)
		})
	}
}

func shadow(b *bench) {
	dark := b.rule("dark", "1/10s fixed-window")
	dark.OnLimit = limiter.Shadow
	l := b.limiter(dark)
	b.serve(app{limiter: l})
	for range 3 {
		b.steps(step{0, "", b.passed("ok")})
	}
	b.wantLeft(l, 0)
}

func degraded(b *bench) {
	soft := b.rule("a", "1/10s fixed-window")
	soft.OnLimit = limiter.Degrade
	b.serve(app{limiter: b.limiter(soft), handler: sayDegraded})

	b.steps(
		step{0, "", b.passed("good").with(rate(0, 1, 0, 10))},
		step{0, "", b.passed("cheap").with(rate(0, 1, 0, 10))},
	)
	b.everyForm("", b.passed("cheap").with(rate(0, 1, 0, 10)))
	b.steps(step{ten, "", b.passed("good").with(rate(10, 1, 0, 10))})
}

// banned has a rule that bans for 90 seconds, and next time for 100, which is the most. The
// ban ends earlier if it is lifted.
func banned(b *bench) {
	r := b.rule("a", "1/10s fixed-window")
	r.Ban = core.MustParseBan("2/1m for 90s max 100s")
	l := b.limiter(r)
	b.serve(app{limiter: l})

	passes := b.passed("ok")
	b.steps(
		step{0, "", passes.with(rate(0, 1, 0, 10))},
		step{0, "", b.refusal("a", ten).with(rate(0, 1, 0, 10))},
		step{0, "", b.abnormal("a", 90*second).with(rate(0, 1, 0, 90))},
	)

	// What is asked during the ban does not make it longer.
	b.clock.set(20 * second)
	b.everyForm("", b.abnormal("a", 70*second).with(rate(20, 1, 0, 70)))

	b.steps(
		step{90*second - time.Microsecond, "", b.abnormal("a", time.Microsecond).with(rate(89, 1, 0, 1))},
		step{90 * second, "", passes.with(rate(90, 1, 0, 10))},
		step{90 * second, "", b.refusal("a", ten).with(rate(90, 1, 0, 10))},
		step{90 * second, "", b.abnormal("a", 100*second).with(rate(90, 1, 0, 100))},
	)

	if err := l.Lift(b.Context(), "a", "127.0.0.1"); err != nil {
		b.Error(err)
	}
	b.steps(step{100 * second, "", passes.with(rate(100, 1, 0, 10))})
}
