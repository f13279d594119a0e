package httpspec

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

var options = []spec{
	{"a limiter that fails closed answers 503 while the store fails", failClosed},
	{"a denied caller gets a 403 without limits, and an allowed one is not limited", denied},
	{"a limiter that fails open sends no headers while the store fails", failOpen},
	{"a skipped request is not counted", skip},
	{"a skip that panics skips nothing", skipThatPanics},
	{"the program's own answer to a refusal", ownRefusal},
	{"the program's own answer to a failure", ownFailure},
	{"the program's own answer may be an error", ownError},
	{"a fallback answers over a degrade rule", fallback},
	{"answers made of templates", templates},
	{"a fallback that is kept ready", readyFallback},
	{"the program's own answer goes before the template", ownBeforeTemplate},
	{"a handler asks and takes by the rules' own keys", askAgain},
	{"a handler that writes nothing has the template answer", silentHandlers},
}

func failClosed(b *bench) {
	b.serve(App{Limiter: b.configured(limiter.Config{OnStoreError: limiter.FailClosed, Rules: []limiter.Rule{b.rule("a", "2/10s fixed-window")}})})
	b.steps(step{0, "GET /", Text(200, "ok").with(rate(0, 2, 1, 10))})
	b.store.broken.Store(true)
	b.steps(
		step{0, "GET /", failure()},
		step{0, "HEAD /", failure().forHEAD()},
	)
	b.store.broken.Store(false)
	b.steps(step{0, "GET /", Text(200, "ok").with(rate(0, 2, 0, 10))})
}

func denied(b *bench) {
	r := b.rule("a", "1/10s fixed-window")
	r.Key = keyfuncs.Header("X-Key")
	r.Access = keyfuncs.MustAccess(keyfuncs.Lists{
		Allow: keyfuncs.Callers{Keys: []string{"carol"}}, Deny: keyfuncs.Callers{Keys: []string{"mallory"}},
	})
	b.serve(App{Limiter: b.limiter(r)})
	b.steps(
		step{0, "GET /\nX-Key: mallory", denial("a")},
		step{0, "HEAD /\nX-Key: mallory", denial("a").forHEAD()},
		step{0, "GET /\nX-Key: carol", Text(200, "ok")},
		step{0, "GET /\nX-Key: carol", Text(200, "ok")},
		step{0, "GET /\nX-Key: bob", Text(200, "ok").with(rate(0, 1, 0, 10))},
		step{0, "GET /\nX-Key: bob", refusal("a", 10).with(rate(0, 1, 0, 10))},
	)
}

func failOpen(b *bench) {
	b.serve(App{Limiter: b.limiter(b.rule("a", "1/10s fixed-window"))})
	b.store.broken.Store(true)
	b.steps(
		step{0, "GET /", Text(200, "ok")},
		step{0, "GET /", Text(200, "ok")},
	)
	b.store.broken.Store(false)
	b.steps(
		step{0, "GET /", Text(200, "ok").with(rate(0, 1, 0, 10))},
		step{0, "GET /", refusal("a", 10).with(rate(0, 1, 0, 10))},
	)
}

func skip(b *bench) {
	b.serve(App{Limiter: b.limiter(b.rule("a", "1/10s fixed-window")), Skip: true})
	b.steps(
		step{0, "GET /\nX-Skip: 1", Text(200, "ok")},
		step{0, "GET /", Text(200, "ok").with(rate(0, 1, 0, 10))},
		step{0, "GET /", refusal("a", 10).with(rate(0, 1, 0, 10))},
		step{0, "GET /\nX-Skip: 1", Text(200, "ok")},
	)
}

// Skips is the function of the program that an adapter skips requests by. It panics if
// the header says so.
func Skips(header string) bool {
	if header == "panic" {
		panic("skip")
	}
	return header != ""
}

func skipThatPanics(b *bench) {
	b.serve(App{Limiter: b.limiter(b.rule("a", "1/10s fixed-window")), Skip: true})
	b.steps(
		step{0, "GET /\nX-Skip: panic", Text(200, "ok").with(rate(0, 1, 0, 10))},
		step{0, "GET /\nX-Skip: panic", refusal("a", 10).with(rate(0, 1, 0, 10))},
	)
}

// explain answers with the outcome of the admission.
func explain(status int) func(Exchange, *limiter.Admission) error {
	return func(x Exchange, a *limiter.Admission) error {
		return x.Reply(status, a.Outcome().String()+" by "+strings.Join(a.Violated(), " and "))
	}
}

// always holds the headers of each refusal, also of one that the program answers.
var always = map[string]string{"Retry-After": "10", "Cache-Control": "no-store"}

func ownRefusal(b *bench) {
	b.serve(App{
		Limiter: b.limiter(b.rule("a", "1/10s fixed-window")),
		Refused: explain(420),
		Failed:  explain(521),
	})
	b.steps(
		step{0, "GET /", Text(200, "ok").with(rate(0, 1, 0, 10))},
		step{0, "GET /", Text(420, "refused by a").with(rate(0, 1, 0, 10), always)},
		step{0, "GET /", Text(420, "refused by a").with(rate(0, 1, 0, 10), always)},
	)
}

func ownFailure(b *bench) {
	b.serve(App{
		Limiter: b.configured(limiter.Config{OnStoreError: limiter.FailClosed, Rules: []limiter.Rule{b.rule("a", "1/10s fixed-window")}}),
		Refused: explain(420),
		Failed:  explain(521),
	})
	b.store.broken.Store(true)
	b.steps(step{0, "GET /", Text(521, "failed by ").with(map[string]string{"Retry-After": "1", "Cache-Control": "no-store"})})
}

func ownError(b *bench) {
	b.serve(App{
		Limiter: b.limiter(b.rule("a", "1/10s fixed-window")),
		Refused: func(x Exchange, _ *limiter.Admission) error { return x.Fail(403) },
	})
	b.steps(
		step{0, "GET /", Text(200, "ok").with(rate(0, 1, 0, 10))},
		step{0, "GET /", b.Fails(403).with(rate(0, 1, 0, 10), always)},
	)
}

func fallback(b *bench) {
	soft := b.rule("a", "1/10s fixed-window")
	soft.OnLimit = limiter.Degrade
	b.serve(App{
		Limiter:  b.limiter(soft),
		Degraded: func(x Exchange) error { return x.Reply(203, "from the cache") },
	})
	b.steps(
		step{0, "GET /", Text(200, "ok").with(rate(0, 1, 0, 10))},
		step{0, "GET /", Text(203, "from the cache").with(rate(0, 1, 0, 10))},
	)
}

// fixed has a header of its own, and one that replaces a header of the limiter.
var fixed = limiter.Answer{Status: 508, Body: []byte("full"), Headers: []limiter.Header{
	{Name: "Content-Type", Value: "text/html"}, {Name: "Retry-After", Value: "77"}, {Name: "X-Own", Value: "a, b"}}}

func templates(b *bench) {
	limited := map[string]string{"Retry-After": "10", "Cache-Control": "no-store"}
	failed := map[string]string{"Retry-After": "1", "Cache-Control": "no-store"}
	rows := []struct {
		name            string
		template        limiter.Template
		refused, failed Answer
	}{
		{"PlainText", limiter.PlainText,
			Text(429, "Too many requests. Retry after 10 seconds.\n").with(limited),
			Text(503, "Service unavailable.\n").with(failed)},
		{"JSON", limiter.JSON,
			Typed(429, "application/json", `{"error":"too_many_requests","retry_after":10,"rules":["a"]}`).with(limited),
			Typed(503, "application/json", `{"error":"service_unavailable","retry_after":1}`).with(failed)},
		{"ProblemJSON", limiter.ProblemJSON, refusal("a", 10), failure()},
		{"MustRedirect", limiter.MustRedirect("/busy"),
			Bare(303).with(limited, map[string]string{"Location": "/busy"}),
			Bare(303).with(failed, map[string]string{"Location": "/busy"})},
		{"Fixed", limiter.Fixed(fixed),
			Typed(508, "text/html", "full").with(limited, map[string]string{"Retry-After": "77", "X-Own": "a, b"}),
			Typed(508, "text/html", "full").with(failed, map[string]string{"Retry-After": "77", "X-Own": "a, b"})},
		{"Fixed without a status", limiter.Fixed(limiter.Answer{Body: []byte("no"), Headers: []limiter.Header{{Name: "Content-Type", Value: Plain}}}),
			Text(429, "no").with(limited), Text(503, "no").with(failed)},
		{"nil", nil, refusal("a", 10), failure()},
	}
	for _, row := range rows {
		b.row(row.name, func(b *bench) {
			l := b.configured(limiter.Config{OnStoreError: limiter.FailClosed, Rules: []limiter.Rule{b.rule("a", "1/10s fixed-window")},
				Refused: row.template, Failed: row.template})
			b.serve(App{Limiter: l})
			b.ask("GET /")
			b.steps(
				step{0, "GET /", row.refused.with(rate(0, 1, 0, 10))},
				step{0, "HEAD /", row.refused.with(rate(0, 1, 0, 10)).forHEAD()},
			)
			b.store.broken.Store(true)
			b.steps(step{0, "GET /", row.failed})
		})
	}
}

func readyFallback(b *bench) {
	soft := b.rule("a", "1/10s fixed-window")
	soft.OnLimit = limiter.Degrade
	ready, plain := fixed, fixed
	plain.Status = 0
	for status, answer := range map[int]limiter.Answer{508: ready, 200: plain} {
		b.row(strconv.Itoa(status), func(b *bench) {
			b.serve(App{Limiter: b.configured(limiter.Config{Rules: []limiter.Rule{soft}, Degraded: limiter.Fixed(answer)})})
			b.steps(
				step{0, "GET /", Text(200, "ok").with(rate(0, 1, 0, 10))},
				step{0, "GET /", Typed(status, "text/html", "full").with(rate(0, 1, 0, 10), map[string]string{"Retry-After": "77", "X-Own": "a, b"})},
			)
		})
	}
}

func ownBeforeTemplate(b *bench) {
	soft, hard := b.rule("a", "1/10s fixed-window"), b.rule("b", "2/10s fixed-window")
	soft.OnLimit = limiter.Degrade
	full := limiter.Fixed(fixed)
	b.serve(App{
		Limiter: b.configured(limiter.Config{OnStoreError: limiter.FailClosed, Rules: []limiter.Rule{soft, hard}, Headers: limiter.NoHeaders,
			Refused: full, Failed: full, Degraded: full}),
		Refused:  explain(420),
		Failed:   explain(521),
		Degraded: func(x Exchange) error { return x.Reply(203, "from the cache") },
	})
	b.steps(
		step{0, "GET /", Text(200, "ok")},
		step{0, "GET /", Text(203, "from the cache")},
		step{0, "GET /", Text(420, "refused by b").with(always)},
	)
	b.store.broken.Store(true)
	b.steps(step{0, "GET /", Text(521, "failed by ").with(map[string]string{"Retry-After": "1", "Cache-Control": "no-store"})})
}

// askAgain has the handler reset, take and peek what the middleware counts.
func askAgain(b *bench) {
	user := b.rule("a", "5/10s fixed-window")
	user.Key = b.User
	l := b.limiter(user)
	b.serve(App{Limiter: l, Handler: func(x Exchange) error {
		res, err := l.TakeRequest(x.Request())
		if err != nil {
			return err
		}
		list, err := l.PeekRequest(x.Request())
		if err != nil {
			return err
		}
		if list[0].Decision.Remaining == 1 {
			err = l.ResetRequest(x.Request())
		}
		if err != nil {
			return err
		}
		return x.Reply(200, fmt.Sprintf("%t, %d left", res.Allowed(), list[0].Decision.Remaining))
	}})
	b.steps(
		step{0, "GET /\nX-User: ann", Text(200, "true, 3 left").with(rate(0, 5, 4, 10))},
		step{0, "GET /\nX-User: ann", Text(200, "true, 1 left").with(rate(0, 5, 2, 10))},
		step{0, "GET /\nX-User: ann", Text(200, "true, 3 left").with(rate(0, 5, 4, 10))},
		step{0, "GET /\nX-User: bob", Text(200, "true, 3 left").with(rate(0, 5, 4, 10))},
	)
}

func silentHandlers(b *bench) {
	silent := func(Exchange, *limiter.Admission) error { return nil }
	b.serve(App{
		Limiter: b.configured(limiter.Config{OnStoreError: limiter.FailClosed, Rules: []limiter.Rule{b.rule("a", "1/10s fixed-window")},
			Failed: limiter.PlainText}),
		Refused: silent,
		Failed:  silent,
	})
	b.steps(
		step{0, "GET /", Text(200, "ok").with(rate(0, 1, 0, 10))},
		step{0, "GET /", refusal("a", 10).with(rate(0, 1, 0, 10))},
	)
	b.store.broken.Store(true)
	b.steps(step{0, "GET /", Text(503, "Service unavailable.\n").with(map[string]string{"Retry-After": "1", "Cache-Control": "no-store"})})
}
