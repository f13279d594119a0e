package httpspec

import (
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

var limiting = []spec{
	{"a stream of requests over the limit gets the same answers everywhere", overTheLimit},
	{"a client that waits for Retry-After is admitted", retryAfter},
	{"the scarcer of two rules decides and no unit is taken of the other", twoRules},
	{"a refusal on the wire", onTheWire},
	{"every preset of headers", presets},
	{"HEAD is answered as GET is", head},
	{"a preflight counts as any request", preflight},
	{"preflights pass uncounted where the limiter skips them", skippedPreflight},
	{"a shadow rule does not change answers", shadow},
	{"over a degrade rule the context reports it", degraded},
	{"a key that is refused too often is banned, and let in again", banned},
}

func overTheLimit(b *bench) {
	var calls atomic.Int64
	b.serve(App{Limiter: b.limiter(b.rule("a", "3/10s fixed-window")), Handler: func(x Exchange) error {
		calls.Add(1)
		return x.Reply(200, "ok")
	}})
	ok := Text(200, "ok")
	b.steps(
		step{0, "GET /", ok.with(rate(0, 3, 2, 10))},
		step{1 * time.Second, "POST /x", ok.with(rate(1, 3, 1, 9))},
		step{1 * time.Second, "DELETE /x?y=z", ok.with(rate(1, 3, 0, 9))},
		step{1 * time.Second, "GET /", refusal("a", 9).with(rate(1, 3, 0, 9))},
		step{8 * time.Second, "PUT /", refusal("a", 2).with(rate(8, 3, 0, 2))},
		step{9 * time.Second, "GET /", refusal("a", 1).with(rate(9, 3, 0, 1))},
		step{10 * time.Second, "GET /", ok.with(rate(10, 3, 2, 10))},
	)
	if n := calls.Load(); n != 4 {
		b.Errorf("the handler was called %d times, not 4", n)
	}
}

func retryAfter(b *bench) {
	b.serve(App{Limiter: b.limiter(b.rule("a", "1/10s fixed-window"))})
	ok, second := Text(200, "ok"), time.Second
	b.steps(
		step{0, "GET /", ok.with(rate(0, 1, 0, 10))},
		step{3 * second, "GET /", refusal("a", 7).with(rate(3, 1, 0, 7))},
		step{10*second - time.Microsecond, "GET /", refusal("a", 1).with(rate(9, 1, 0, 1))},
		step{10 * second, "GET /", ok.with(rate(10, 1, 0, 10))},
	)
}

func twoRules(b *bench) {
	b.serve(App{Limiter: b.limiter(b.rule("a", "9/10s fixed-window"), b.rule("b", "1/1h fixed-window"))})
	headers := func(left, a int) map[string]string {
		text := `"b";r=0;t=3600, "a";r=8;t=10`
		if a == 9 {
			text = `"b";r=0;t=3590, "a";r=9;t=0`
		}
		return map[string]string{
			"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1800003600",
			"Ratelimit-Policy": `"a";q=9;w=10, "b";q=1;w=3600`, "Ratelimit": text,
		}
	}
	b.steps(
		step{0, "GET /", Text(200, "ok").with(headers(0, 8))},
		step{0, "GET /", refusal("b", 3600).with(headers(0, 8))},
		step{10 * time.Second, "GET /", refusal("b", 3590).with(headers(0, 9))},
	)
}

// onTheWire spells the expected answer out.
func onTheWire(b *bench) {
	b.serve(App{Limiter: b.limiter(b.rule("per-address", "1/1m fixed-window"))})
	b.ask("GET /")
	want := `429
Cache-Control: no-store
Content-Length: 231
Content-Type: application/problem+json
Ratelimit: "per-address";r=0;t=60
Ratelimit-Policy: "per-address";q=1;w=60
Retry-After: 60
X-Ratelimit-Limit: 1
X-Ratelimit-Remaining: 0
X-Ratelimit-Reset: 1800000060

{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded",` +
		`"status":429,"detail":"Retry after 60 seconds.","violated-policies":["per-address"]}`
	if got := b.ask("GET /").String(); got != want {
		b.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func presets(b *bench) {
	x := map[string]string{"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1800000010"}
	delta := map[string]string{"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "10"}
	draft := map[string]string{"Ratelimit-Policy": `"a";q=1;w=10`, "Ratelimit": `"a";r=0;t=10`}
	rows := []struct {
		name  string
		style limiter.HeaderStyle
		want  map[string]string
	}{
		{"XRateLimit", limiter.XRateLimit, x}, {"XRateLimitDelta", limiter.XRateLimitDelta, delta},
		{"Draft8", limiter.Draft8, draft}, {"NoHeaders", limiter.NoHeaders, nil},
	}
	for _, row := range rows {
		b.row(row.name, func(b *bench) {
			l := b.configured(limiter.Config{Headers: row.style, Rules: []limiter.Rule{b.rule("a", "1/10s fixed-window")}})
			b.serve(App{Limiter: l})
			b.steps(
				step{0, "GET /", Text(200, "ok").with(row.want)},
				step{0, "GET /", refusal("a", 10).with(row.want)},
			)
		})
	}
}

func head(b *bench) {
	b.serve(App{Limiter: b.limiter(b.rule("a", "2/10s fixed-window"))})
	b.steps(
		step{0, "HEAD /", Text(200, "ok").with(rate(0, 2, 1, 10)).forHEAD()},
		step{0, "GET /", Text(200, "ok").with(rate(0, 2, 0, 10))},
		step{0, "HEAD /", refusal("a", 10).with(rate(0, 2, 0, 10)).forHEAD()},
	)
}

// asPreflight is a request in the form of a CORS preflight.
const asPreflight = "OPTIONS /login\nOrigin: https://a.example\nAccess-Control-Request-Method: POST"

// preflight guesses passwords in a form that anyone can send, at a handler of every
// method.
func preflight(b *bench) {
	var guesses atomic.Int64
	b.serve(App{Limiter: b.limiter(b.rule("a", "3/1h sliding-log")), Handler: func(x Exchange) error {
		guesses.Add(1)
		return x.Reply(200, "ok")
	}})
	for i := range 10 {
		want := 429
		if i < 3 {
			want = 200
		}
		if got := b.ask(asPreflight).Status; got != want {
			b.Fatalf("preflight %d: %d, want %d", i, got, want)
		}
	}
	if n := guesses.Load(); n != 3 {
		b.Errorf("the handler was called %d times, not 3", n)
	}
}

func skippedPreflight(b *bench) {
	b.serve(App{Limiter: b.configured(limiter.Config{SkipPreflights: true, Rules: []limiter.Rule{b.rule("a", "1/10s fixed-window")}})})
	ok := Text(200, "ok")
	b.steps(
		step{0, asPreflight, ok},
		step{0, asPreflight, ok},
		step{0, "OPTIONS /\nOrigin: https://a.example", ok.with(rate(0, 1, 0, 10))},
		step{0, "OPTIONS /\nAccess-Control-Request-Method: PUT", refusal("a", 10).with(rate(0, 1, 0, 10))},
		step{0, "GET /\nOrigin: https://a.example\nAccess-Control-Request-Method: PUT", refusal("a", 10).with(rate(0, 1, 0, 10))},
		step{0, asPreflight, ok},
	)
}

func shadow(b *bench) {
	dark := b.rule("dark", "1/10s fixed-window")
	dark.OnLimit = limiter.Shadow
	l := b.limiter(dark)
	b.serve(App{Limiter: l})
	for range 3 {
		b.steps(step{0, "GET /", Text(200, "ok")})
	}
	b.wantLeft(l, 0)
}

// banned has a rule that bans for 90 seconds, and next time for 100, which is the most. The
// ban ends earlier if it is lifted.
func banned(b *bench) {
	r := b.rule("a", "1/10s fixed-window")
	r.Ban = core.MustParseBan("2/1m for 90s max 100s")
	l := b.limiter(r)
	b.serve(App{Limiter: l})
	ok, second := Text(200, "ok"), time.Second
	b.steps(
		step{0, "GET /", ok.with(rate(0, 1, 0, 10))},
		step{0, "GET /", refusal("a", 10).with(rate(0, 1, 0, 10))},
		step{0, "GET /", abnormal("a", 90).with(rate(0, 1, 0, 90))},
		step{20 * second, "HEAD /", abnormal("a", 70).with(rate(20, 1, 0, 70)).forHEAD()},
		step{90*second - time.Microsecond, "GET /", abnormal("a", 1).with(rate(89, 1, 0, 1))},
		step{90 * second, "GET /", ok.with(rate(90, 1, 0, 10))},
		step{90 * second, "GET /", refusal("a", 10).with(rate(90, 1, 0, 10))},
		step{90 * second, "GET /", abnormal("a", 100).with(rate(90, 1, 0, 100))},
	)
	if err := l.Lift(b.Context(), "a", "127.0.0.1"); err != nil {
		b.Error(err)
	}
	b.steps(step{100 * second, "GET /", ok.with(rate(100, 1, 0, 10))})
}

// replyDegraded answers "cheap" to a degraded request and "good" to others.
func replyDegraded(x Exchange) error {
	if limiter.Degraded(x.Context()) {
		return x.Reply(200, "cheap")
	}
	return x.Reply(200, "good")
}

func degraded(b *bench) {
	soft := b.rule("a", "1/10s fixed-window")
	soft.OnLimit = limiter.Degrade
	b.serve(App{Limiter: b.limiter(soft), Handler: replyDegraded})
	b.steps(
		step{0, "GET /", Text(200, "good").with(rate(0, 1, 0, 10))},
		step{0, "GET /", Text(200, "cheap").with(rate(0, 1, 0, 10))},
		step{10 * time.Second, "GET /", Text(200, "good").with(rate(10, 1, 0, 10))},
	)
}
