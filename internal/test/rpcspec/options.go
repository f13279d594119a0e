package rpcspec

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

var options = []spec{
	{"a limiter that fails closed answers Unavailable while the store fails", failClosed},
	{"a limiter that fails open sends no headers while the store fails", failOpen},
	{"a denied caller gets PermissionDenied, and an allowed one is not limited", denied},
	{"a skipped call is not counted", skip},
	{"a skip that panics skips nothing", skipThatPanics},
	{"the program's own error for a refusal", ownRefusal},
	{"the program's own error for a failure", ownFailure},
	{"a function that returns no error has the limiter's", silentFunctions},
	{"templates of the limiter are called for their delays", templates},
	{"a handler asks and takes by the rules' own keys", askAgain},
}

func failClosed(b *bench) {
	b.serve(App{Limiter: b.configured(limiter.Config{OnStoreError: limiter.FailClosed, Rules: []limiter.Rule{b.rule("a", "2/10s fixed-window")}})})
	b.steps(step{0, "", text("ok").with(rate(0, 2, 1, 10))})
	b.store.broken.Store(true)
	b.steps(step{0, "", unavailable()})
	b.equal(b.chat(b.Context(), "").End(), unavailable(), "a stream")
	b.store.broken.Store(false)
	b.steps(step{0, "", text("ok").with(rate(0, 2, 0, 10))})
}

func failOpen(b *bench) {
	b.serve(App{Limiter: b.limiter(b.rule("a", "1/10s fixed-window"))})
	b.store.broken.Store(true)
	b.steps(step{0, "", text("ok")}, step{0, "", text("ok")})
	b.store.broken.Store(false)
	b.steps(
		step{0, "", text("ok").with(rate(0, 1, 0, 10))},
		step{0, "", refusal("a", ten).with(rate(0, 1, 0, 10))},
	)
}

func denied(b *bench) {
	for status, code := range map[int]rpc.Code{0: rpc.PermissionDenied, 403: rpc.PermissionDenied, 429: rpc.ResourceExhausted} {
		b.row(fmt.Sprint(status), func(b *bench) {
			r := b.rule("a", "1/10s fixed-window")
			r.Key, r.DenyStatus = keyfuncs.Header("X-Key"), status
			r.Access = keyfuncs.MustAccess(keyfuncs.Lists{
				Allow: keyfuncs.Callers{Keys: []string{"carol"}}, Deny: keyfuncs.Callers{Keys: []string{"mallory"}},
			})
			b.serve(App{Limiter: b.limiter(r)})
			b.steps(
				step{0, "x-key: mallory", failed(code, `denied by "a"`)},
				step{0, "x-key: carol", text("ok")},
				step{0, "x-key: carol", text("ok")},
				step{0, "x-key: bob", text("ok").with(rate(0, 1, 0, 10))},
				step{0, "x-key: bob", refusal("a", ten).with(rate(0, 1, 0, 10))},
			)
		})
	}
}

func skip(b *bench) {
	b.serve(App{Limiter: b.limiter(b.rule("a", "1/10s fixed-window")), Skip: true})
	b.steps(
		step{0, "x-skip: 1", text("ok")},
		step{0, "", text("ok").with(rate(0, 1, 0, 10))},
		step{0, "", refusal("a", ten).with(rate(0, 1, 0, 10))},
		step{0, "x-skip: 1", text("ok")},
	)
}

// Skips is the function of the program that an adapter skips calls by. It panics if
// the field says so.
func Skips(field string) bool {
	if field == "panic" {
		panic("skip")
	}
	return field != ""
}

func skipThatPanics(b *bench) {
	b.serve(App{Limiter: b.limiter(b.rule("a", "1/10s fixed-window")), Skip: true})
	b.steps(
		step{0, "x-skip: panic", text("ok").with(rate(0, 1, 0, 10))},
		step{0, "x-skip: panic", refusal("a", ten).with(rate(0, 1, 0, 10))},
	)
}

// explain answers with the outcome of the admission.
func (b *bench) explain(code rpc.Code) func(context.Context, *limiter.Admission) error {
	return func(_ context.Context, a *limiter.Admission) error {
		return b.NewError(code, fmt.Sprintf("%s by %q", a.Outcome(), a.Violated()))
	}
}

func ownRefusal(b *bench) {
	b.serve(App{Limiter: b.limiter(b.rule("a", "1/10s fixed-window")), Refused: b.explain(9), Failed: b.explain(10)})
	pair := map[string]string{"retry-after": "10"}
	b.steps(
		step{0, "", text("ok").with(rate(0, 1, 0, 10))},
		step{0, "", failed(9, `refused by ["a"]`).with(rate(0, 1, 0, 10), pair)},
	)
	b.equal(b.chat(b.Context(), "").End(), failed(9, `refused by ["a"]`).with(rate(0, 1, 0, 10), pair), "a stream")
}

func ownFailure(b *bench) {
	b.serve(App{
		Limiter: b.configured(limiter.Config{OnStoreError: limiter.FailClosed, Rules: []limiter.Rule{b.rule("a", "1/10s fixed-window")}}),
		Refused: b.explain(9), Failed: b.explain(10),
	})
	b.store.broken.Store(true)
	b.steps(step{0, "", failed(10, `failed by []`).with(map[string]string{"retry-after": "1"})})
}

func silentFunctions(b *bench) {
	none := func(context.Context, *limiter.Admission) error { return nil }
	b.serve(App{
		Limiter: b.configured(limiter.Config{OnStoreError: limiter.FailClosed, Rules: []limiter.Rule{b.rule("a", "1/10s fixed-window")}}),
		Refused: none, Failed: none,
	})
	b.steps(
		step{0, "", text("ok").with(rate(0, 1, 0, 10))},
		step{0, "", refusal("a", ten).with(rate(0, 1, 0, 10))},
	)
	b.store.broken.Store(true)
	b.steps(step{0, "", unavailable()})
}

func templates(b *bench) {
	var refused, failed atomic.Int64
	count := func(n *atomic.Int64) limiter.Template {
		return func(*limiter.Admission) limiter.Answer {
			n.Add(1)
			return limiter.Answer{Status: 200, Body: []byte("no")}
		}
	}
	b.serve(App{Limiter: b.configured(limiter.Config{OnStoreError: limiter.FailClosed, Rules: []limiter.Rule{b.rule("a", "1/10s fixed-window")},
		Refused: count(&refused), Failed: count(&failed)})})
	b.steps(
		step{0, "", text("ok").with(rate(0, 1, 0, 10))},
		step{0, "", refusal("a", ten).with(rate(0, 1, 0, 10))},
	)
	b.store.broken.Store(true)
	b.steps(step{0, "", unavailable()})
	if refused.Load() != 1 || failed.Load() != 1 {
		b.Errorf("the templates were called %d and %d times", refused.Load(), failed.Load())
	}
}

// askAgain has the handler reset, take and peek what the interceptor counts.
func askAgain(b *bench) {
	user := b.rule("a", "5/10s fixed-window")
	user.Key = b.User
	l := b.limiter(user)
	b.serve(App{Limiter: l, Say: func(ctx context.Context, _ string) (string, error) {
		res, err := l.TakeRequest(b.Request(ctx))
		if err != nil {
			return "", err
		}
		list, err := l.PeekRequest(b.Request(ctx))
		if err != nil {
			return "", err
		}
		if list[0].Decision.Remaining == 1 {
			err = l.ResetRequest(b.Request(ctx))
		}
		return fmt.Sprintf("%t, %d left", res.Allowed(), list[0].Decision.Remaining), err
	}})
	b.steps(
		step{0, "x-user: ann", text("true, 3 left").with(rate(0, 5, 4, 10))},
		step{0, "x-user: ann", text("true, 1 left").with(rate(0, 5, 2, 10))},
		step{0, "x-user: ann", text("true, 3 left").with(rate(0, 5, 4, 10))},
		step{0, "x-user: bob", text("true, 3 left").with(rate(0, 5, 4, 10))},
	)
}
