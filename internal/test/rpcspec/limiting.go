package rpcspec

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/limiter"
)

var limiting = []spec{
	{"a stream of calls over the limit gets the same answers everywhere", overTheLimit},
	{"a client that waits for RetryInfo is admitted", retryInfo},
	{"the scarcer of two rules decides and no unit is taken of the other", twoRules},
	{"a stream counts once, and is refused like a call", streams},
	{"every preset of headers", presets},
	{"a shadow rule does not change answers", shadow},
	{"over a degrade rule the context reports it", degraded},
	{"a key that is refused too often is banned, and let in again", banned},
	{"a call that costs more than the limit can hold gets no RetryInfo", impossible},
}

const (
	second = time.Second
	ten    = 10 * time.Second
)

func overTheLimit(b *bench) {
	var calls atomic.Int64
	b.serve(App{Limiter: b.limiter(b.rule("a", "3/10s fixed-window")), Say: func(_ context.Context, text string) (string, error) {
		calls.Add(1)
		return text, nil
	}})
	ok := text("ok")
	b.steps(
		step{0, "", ok.with(rate(0, 3, 2, 10))},
		step{1 * second, "", ok.with(rate(1, 3, 1, 9))},
		step{1 * second, "", ok.with(rate(1, 3, 0, 9))},
		step{1 * second, "", refusal("a", 9*second).with(rate(1, 3, 0, 9))},
		step{8 * second, "", refusal("a", 2*second).with(rate(8, 3, 0, 2))},
		step{9 * second, "", refusal("a", 1*second).with(rate(9, 3, 0, 1))},
		step{10 * second, "", ok.with(rate(10, 3, 2, 10))},
	)
	if n := calls.Load(); n != 4 {
		b.Errorf("the handler was called %d times, not 4", n)
	}
}

func retryInfo(b *bench) {
	b.serve(App{Limiter: b.limiter(b.rule("a", "1/10s fixed-window"))})
	ok := text("ok")
	b.steps(
		step{0, "", ok.with(rate(0, 1, 0, 10))},
		step{3 * second, "", refusal("a", 7*second).with(rate(3, 1, 0, 7))},
		step{ten - time.Microsecond, "", refusal("a", time.Microsecond).with(rate(9, 1, 0, 1))},
		step{ten, "", ok.with(rate(10, 1, 0, 10))},
	)
}

func twoRules(b *bench) {
	b.serve(App{Limiter: b.limiter(b.rule("a", "9/10s fixed-window"), b.rule("b", "1/1h fixed-window"))})
	pairs := func(a int) map[string]string {
		list := `"b";r=0;t=3600, "a";r=8;t=10`
		if a == 9 {
			list = `"b";r=0;t=3590, "a";r=9;t=0`
		}
		return map[string]string{
			"x-ratelimit-limit": "1", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1800003600",
			"ratelimit-policy": `"a";q=9;w=10, "b";q=1;w=3600`, "ratelimit": list,
		}
	}
	b.steps(
		step{0, "", text("ok").with(pairs(8))},
		step{0, "", refusal("b", time.Hour).with(pairs(8))},
		step{ten, "", refusal("b", 3590*second).with(pairs(9))},
	)
}

func streams(b *bench) {
	b.serve(App{Limiter: b.limiter(b.rule("a", "2/10s fixed-window"))})
	s := b.chat(b.Context(), "")
	for _, text := range []string{"one", "two", "three"} {
		b.say(s, text)
	}
	if err := s.CloseSend(); err != nil {
		b.Error(err)
	}
	b.equal(s.End(), text("").with(rate(0, 2, 1, 10)), "a stream of three messages")
	s = b.chat(b.Context(), "")
	if err := s.CloseSend(); err != nil {
		b.Error(err)
	}
	b.equal(s.End(), text("").with(rate(0, 2, 0, 10)), "a stream without messages")
	b.equal(b.chat(b.Context(), "").End(), refusal("a", ten).with(rate(0, 2, 0, 10)), "the third stream")
	b.steps(step{0, "", refusal("a", ten).with(rate(0, 2, 0, 10))})
}

func presets(b *bench) {
	x := map[string]string{"x-ratelimit-limit": "1", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1800000010"}
	delta := map[string]string{"x-ratelimit-limit": "1", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "10"}
	draft := map[string]string{"ratelimit-policy": `"a";q=1;w=10`, "ratelimit": `"a";r=0;t=10`}
	own := func([]limiter.RuleDecision) []limiter.Header { return []limiter.Header{{Name: "X-Own", Value: "a, b"}} }

	rows := []struct {
		name   string
		config limiter.Config
		want   map[string]string
	}{
		{"XRateLimit", limiter.Config{Headers: limiter.XRateLimit}, x},
		{"XRateLimitDelta", limiter.Config{Headers: limiter.XRateLimitDelta}, delta},
		{"Draft8", limiter.Config{Headers: limiter.Draft8}, draft},
		{"NoHeaders", limiter.Config{Headers: limiter.NoHeaders}, nil},
		{"CustomHeaders", limiter.Config{Headers: limiter.NoHeaders, CustomHeaders: own}, map[string]string{"x-own": "a, b"}},
	}
	for _, row := range rows {
		b.row(row.name, func(b *bench) {
			row.config.Rules = []limiter.Rule{b.rule("a", "1/10s fixed-window")}
			b.serve(App{Limiter: b.configured(row.config)})
			b.steps(
				step{0, "", text("ok").with(row.want)},
				step{0, "", refusal("a", ten).with(row.want)},
			)
		})
	}
}

func shadow(b *bench) {
	dark := b.rule("dark", "1/10s fixed-window")
	dark.OnLimit = limiter.Shadow
	l := b.limiter(dark)
	b.serve(App{Limiter: l})
	for range 3 {
		b.steps(step{0, "", text("ok")})
	}
	b.wantLeft(l, 0)
}

// sayDegraded answers "cheap" to a degraded call and "good" to others.
func sayDegraded(ctx context.Context, _ string) (string, error) {
	if limiter.Degraded(ctx) {
		return "cheap", nil
	}
	return "good", nil
}

func degraded(b *bench) {
	soft := b.rule("a", "1/10s fixed-window")
	soft.OnLimit = limiter.Degrade
	b.serve(App{Limiter: b.limiter(soft), Say: sayDegraded, Chat: func(ctx context.Context, s Stream) error {
		text, _ := sayDegraded(ctx, "")
		return s.Send(text)
	}})
	b.steps(
		step{0, "", text("good").with(rate(0, 1, 0, 10))},
		step{0, "", text("cheap").with(rate(0, 1, 0, 10))},
	)
	b.equal(b.chat(b.Context(), "").End(), text("cheap").with(rate(0, 1, 0, 10)), "a stream")
	b.steps(step{ten, "", text("good").with(rate(10, 1, 0, 10))})
}

// banned has a rule that bans for 90 seconds, and next time for 100, which is the most. The
// ban ends earlier if it is lifted.
func banned(b *bench) {
	r := b.rule("a", "1/10s fixed-window")
	r.Ban = core.MustParseBan("2/1m for 90s max 100s")
	l := b.limiter(r)
	b.serve(App{Limiter: l})
	ok := text("ok")
	b.steps(
		step{0, "", ok.with(rate(0, 1, 0, 10))},
		step{0, "", refusal("a", ten).with(rate(0, 1, 0, 10))},
		step{0, "", abnormal("a", 90*second).with(rate(0, 1, 0, 90))},
		step{90*second - time.Microsecond, "", abnormal("a", time.Microsecond).with(rate(89, 1, 0, 1))},
		step{90 * second, "", ok.with(rate(90, 1, 0, 10))},
		step{90 * second, "", refusal("a", ten).with(rate(90, 1, 0, 10))},
		step{90 * second, "", abnormal("a", 100*second).with(rate(90, 1, 0, 100))},
	)
	if err := l.Lift(b.Context(), "a", "127.0.0.1"); err != nil {
		b.Error(err)
	}
	b.steps(step{100 * second, "", ok.with(rate(100, 1, 0, 10))})
}

func impossible(b *bench) {
	r := b.rule("a", "2/10s fixed-window")
	r.Cost = func(core.Request) int64 { return 3 }
	b.serve(App{Limiter: b.limiter(r)})
	b.steps(step{0, "", Answer{Code: rpc.ResourceExhausted, Message: `the request asks for more than "a" can ever hold`,
		Rules: []string{"a"}}.with(rate(0, 2, 2, 0))})
}
