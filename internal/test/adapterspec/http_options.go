package adapterspec

import (
	"strconv"
	"strings"

	"github.com/headgate/headgate/limiter"
)

var httpOptions = []spec{
	{"the program's own answer may be an error", onHTTP(ownError)},
	{"a fallback answers over a degrade rule", onHTTP(fallback)},
	{"a limiter that is met twice has its fallback answer", onHTTP(twiceDegraded)},
	{"answers made of templates", onHTTP(templates)},
	{"a fallback that is kept ready", onHTTP(readyFallback)},
	{"the program's own answer goes before the template", onHTTP(ownBeforeTemplate)},
	{"a handler that writes nothing has the template answer", onHTTP(silentHandlers)},
}

func ownError(b *httpBench) {
	b.serve(HTTPApp{
		Limiter: b.limiter(b.rule("a", "1/10s fixed-window")),
		Refused: func(x Exchange, _ *limiter.Admission) error { return x.Fail(403) },
	})
	b.steps(
		step{0, "GET /", Text(200, "ok").with(rate(0, 1, 0, 10))},
		step{0, "GET /", b.Fails(403).with(rate(0, 1, 0, 10), b.comeAgain(ten))},
	)
}

func replyFromCache(x Exchange) error { return x.Reply(203, "from the cache") }

func fallback(b *httpBench) {
	soft := b.rule("a", "1/10s fixed-window")
	soft.OnLimit = limiter.Degrade
	b.serve(HTTPApp{Limiter: b.limiter(soft), Degraded: replyFromCache})
	b.steps(
		step{0, "GET /", Text(200, "ok").with(rate(0, 1, 0, 10))},
		step{0, "GET /", Text(203, "from the cache").with(rate(0, 1, 0, 10))},
	)
}

func twiceDegraded(b *httpBench) {
	soft := b.rule("a", "1/10s fixed-window")
	soft.OnLimit = limiter.Degrade
	l := b.limiter(soft)
	b.serve(HTTPApp{Around: []HTTPApp{{Limiter: l}}, Limiter: l, Degraded: replyFromCache})
	b.steps(
		step{0, "GET /", Text(200, "ok").with(rate(0, 1, 0, 10))},
		step{0, "GET /", Text(203, "from the cache").with(rate(0, 1, 0, 10))},
		step{ten, "GET /", Text(200, "ok").with(rate(10, 1, 0, 10))},
	)
}

// fixed has a header of its own, and one that replaces a header of the limiter.
var fixed = limiter.Answer{Status: 508, Body: []byte("full"), Headers: []limiter.Header{
	{Name: "Content-Type", Value: "text/html"}, {Name: "Retry-After", Value: "77"}, {Name: "X-Own", Value: "a, b"}}}

// fixedHeaders are those of fixed in the answer.
var fixedHeaders = map[string]string{"Retry-After": "77", "X-Own": "a, b"}

func templates(b *httpBench) {
	limited, failed := b.comeAgain(ten), b.comeAgain(second)
	noStatus := limiter.Answer{Body: []byte("no"), Headers: []limiter.Header{{Name: "Content-Type", Value: Plain}}}

	rows := []struct {
		name            string
		template        limiter.Template
		refused, failed Answer
	}{
		{"PlainText", limiter.PlainText,
			Text(429, "Too many requests. Retry after 10 seconds.\n").with(limited),
			Text(503, "Service unavailable.\n").with(failed)},
		{"JSON", limiter.JSON,
			Typed(429, "application/json", `{"error":"too_many_requests","retry_after":10,"rules":["a"]}`).
				with(limited),
			Typed(503, "application/json", `{"error":"service_unavailable","retry_after":1}`).with(failed)},
		{"ProblemJSON", limiter.ProblemJSON, b.refusal("a", ten), b.failure(second)},
		{"MustRedirect", limiter.MustRedirect("/busy"),
			Bare(303).with(limited, map[string]string{"Location": "/busy"}),
			Bare(303).with(failed, map[string]string{"Location": "/busy"})},
		{"Fixed", limiter.Fixed(fixed),
			Typed(508, "text/html", "full").with(limited, fixedHeaders),
			Typed(508, "text/html", "full").with(failed, fixedHeaders)},
		{"Fixed without a status", limiter.Fixed(noStatus),
			Text(429, "no").with(limited), Text(503, "no").with(failed)},
		{"nil", nil, b.refusal("a", ten), b.failure(second)},
	}

	// One template answers both, and finds out by the admission what has happened.
	for _, row := range rows {
		b.row(row.name, func(b *httpBench) {
			rules := []limiter.Rule{b.rule("a", "1/10s fixed-window")}
			b.serve(HTTPApp{Limiter: b.configured(limiter.Config{OnStoreError: limiter.FailClosed, Rules: rules,
				Refused: row.template, Failed: row.template})})
			b.send("GET /")

			b.steps(
				step{0, "GET /", row.refused.with(rate(0, 1, 0, 10))},
				step{0, "HEAD /", row.refused.with(rate(0, 1, 0, 10)).forHEAD()},
			)

			b.store.broken.Store(true)
			b.steps(step{0, "GET /", row.failed})
		})
	}
}

func readyFallback(b *httpBench) {
	soft := b.rule("a", "1/10s fixed-window")
	soft.OnLimit = limiter.Degrade
	ready, plain := fixed, fixed
	plain.Status = 0

	// Without a status the answer has that of a request which passes.
	for status, answer := range map[int]limiter.Answer{508: ready, 200: plain} {
		b.row(strconv.Itoa(status), func(b *httpBench) {
			c := limiter.Config{Rules: []limiter.Rule{soft}, Degraded: limiter.Fixed(answer)}
			b.serve(HTTPApp{Limiter: b.configured(c)})
			b.steps(
				step{0, "GET /", Text(200, "ok").with(rate(0, 1, 0, 10))},
				step{0, "GET /", Typed(status, "text/html", "full").with(rate(0, 1, 0, 10), fixedHeaders)},
			)
		})
	}
}

func ownBeforeTemplate(b *httpBench) {
	soft, hard := b.rule("a", "1/10s fixed-window"), b.rule("b", "2/10s fixed-window")
	soft.OnLimit = limiter.Degrade
	full := limiter.Fixed(fixed)

	explain := func(status int) func(Exchange, *limiter.Admission) error {
		return func(x Exchange, a *limiter.Admission) error {
			return x.Reply(status, a.Outcome().String()+" by "+strings.Join(a.Violated(), " and "))
		}
	}

	b.serve(HTTPApp{
		Limiter: b.configured(limiter.Config{OnStoreError: limiter.FailClosed, Rules: []limiter.Rule{soft, hard},
			Headers: limiter.NoHeaders, Refused: full, Failed: full, Degraded: full}),
		Refused:  explain(420),
		Failed:   explain(521),
		Degraded: replyFromCache,
	})

	// The soft rule is full first, and then the hard one too.
	b.steps(
		step{0, "GET /", Text(200, "ok")},
		step{0, "GET /", Text(203, "from the cache")},
		step{0, "GET /", Text(420, "refused by b").with(b.comeAgain(ten))},
	)

	b.store.broken.Store(true)
	b.steps(step{0, "GET /", Text(521, "failed by ").with(b.comeAgain(second))})
}

func silentHandlers(b *httpBench) {
	nothing := func(Exchange, *limiter.Admission) error { return nil }
	rules := []limiter.Rule{b.rule("a", "1/10s fixed-window")}
	c := limiter.Config{OnStoreError: limiter.FailClosed, Rules: rules, Failed: limiter.PlainText}
	b.serve(HTTPApp{
		Limiter: b.configured(c),
		Refused: nothing,
		Failed:  nothing,
	})

	// A refusal has the answer that stands for no template.
	b.steps(
		step{0, "GET /", Text(200, "ok").with(rate(0, 1, 0, 10))},
		step{0, "GET /", b.refusal("a", ten).with(rate(0, 1, 0, 10))},
	)
	b.store.broken.Store(true)
	b.steps(step{0, "GET /", Text(503, "Service unavailable.\n").with(b.comeAgain(second))})
}
