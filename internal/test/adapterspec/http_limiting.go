package adapterspec

import (
	"sync/atomic"

	"github.com/headgate/headgate/limiter"
)

var httpLimiting = []spec{
	{"requests of all methods and paths share one count", onHTTP(anyMethod)},
	{"a refusal on the wire", onHTTP(onTheWire)},
	{"HEAD is answered as GET is", onHTTP(head)},
	{"a preflight counts as any request", onHTTP(preflight)},
	{"preflights pass uncounted where the limiter skips them", onHTTP(skippedPreflight)},
}

func anyMethod(b *httpBench) {
	b.serve(HTTPApp{Limiter: b.limiter(b.rule("a", "3/10s fixed-window"))})
	b.steps(
		step{0, "GET /", Text(200, "ok").with(rate(0, 3, 2, 10))},
		step{0, "POST /x", Text(200, "ok").with(rate(0, 3, 1, 10))},
		step{0, "DELETE /x?y=z", Text(200, "ok").with(rate(0, 3, 0, 10))},
		step{0, "PUT /", b.refusal("a", ten).with(rate(0, 3, 0, 10))},
	)
}

// onTheWire spells the expected answer out.
func onTheWire(b *httpBench) {
	b.serve(HTTPApp{Limiter: b.limiter(b.rule("per-address", "1/1m fixed-window"))})
	b.send("GET /")

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

	// No helper of the specification has made this text.
	if got := b.send("GET /").String(); got != want {
		b.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func head(b *httpBench) {
	b.serve(HTTPApp{Limiter: b.limiter(b.rule("a", "2/10s fixed-window"))})
	b.steps(
		step{0, "HEAD /", Text(200, "ok").with(rate(0, 2, 1, 10)).forHEAD()},
		step{0, "GET /", Text(200, "ok").with(rate(0, 2, 0, 10))},
		step{0, "HEAD /", b.refusal("a", ten).with(rate(0, 2, 0, 10)).forHEAD()},
	)
}

// asPreflight is a request in the form of a CORS preflight.
const asPreflight = "OPTIONS /login\nOrigin: https://a.example\nAccess-Control-Request-Method: POST"

// preflight guesses passwords in a form that anyone can send, at a handler of every
// method.
func preflight(b *httpBench) {
	var guesses atomic.Int64
	b.serve(HTTPApp{Limiter: b.limiter(b.rule("a", "3/1h sliding-log")), Handler: func(x Exchange) error {
		guesses.Add(1)
		return x.Reply(200, "ok")
	}})

	for i := range 10 {
		want := 429
		if i < 3 {
			want = 200
		}
		if got := b.send(asPreflight).Status; got != want {
			b.Fatalf("preflight %d: %d, want %d", i, got, want)
		}
	}
	// The status alone may lie about what the handler has done.
	if n := guesses.Load(); n != 3 {
		b.Errorf("the handler was called %d times, not 3", n)
	}
}

func skippedPreflight(b *httpBench) {
	rules := []limiter.Rule{b.rule("a", "1/10s fixed-window")}
	b.serve(HTTPApp{Limiter: b.configured(limiter.Config{SkipPreflights: true, Rules: rules})})
	ok, refused := Text(200, "ok"), b.refusal("a", ten).with(rate(0, 1, 0, 10))
	b.steps(
		step{0, asPreflight, ok},
		step{0, asPreflight, ok},
		// What lacks one of a preflight's three marks counts.
		step{0, "OPTIONS /\nOrigin: https://a.example", ok.with(rate(0, 1, 0, 10))},
		step{0, "OPTIONS /\nAccess-Control-Request-Method: PUT", refused},
		step{0, "GET /\nOrigin: https://a.example\nAccess-Control-Request-Method: PUT", refused},
		step{0, asPreflight, ok},
	)
}
