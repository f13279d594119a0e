package adapterspec

import (
	"fmt"

	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

var options = []spec{
	{"a limiter that fails closed says so while the store fails", failClosed},
	{"a limiter that fails open sends no headers while the store fails", failOpen},
	{"a denied caller is answered without limits, and an allowed one is not limited", denied},
	{"a skipped request is not counted", skip},
	{"a skip that panics skips nothing", skipThatPanics},
	{"the program's own answer to a refusal", ownRefusal},
	{"the program's own answer to a failure", ownFailure},
	{"a function that answers nothing has the limiter's answer", silentFunctions},
	{"a handler asks and takes by the rules' own keys", askAgain},
}

// closed returns a limiter that fails closed.
func (b *bench) closed(limit string) *limiter.Limiter {
	return b.configured(limiter.Config{OnStoreError: limiter.FailClosed, Rules: []limiter.Rule{b.rule("a", limit)}})
}

func failClosed(b *bench) {
	b.serve(app{limiter: b.closed("2/10s fixed-window")})
	b.steps(step{0, "", b.passed("ok").with(rate(0, 2, 1, 10))})
	b.store.broken.Store(true)
	b.everyForm("", b.failure(second))
	b.store.broken.Store(false)
	b.steps(step{0, "", b.passed("ok").with(rate(0, 2, 0, 10))})
}

func failOpen(b *bench) {
	b.serve(app{limiter: b.limiter(b.rule("a", "1/10s fixed-window"))})
	b.store.broken.Store(true)
	b.steps(step{0, "", b.passed("ok")}, step{0, "", b.passed("ok")})
	b.store.broken.Store(false)
	b.steps(
		step{0, "", b.passed("ok").with(rate(0, 1, 0, 10))},
		step{0, "", b.refusal("a", ten).with(rate(0, 1, 0, 10))},
	)
}

func denied(b *bench) {
	for _, status := range []int{0, 403, 429} {
		b.row(fmt.Sprint(status), func(b *bench) {
			r := b.rule("a", "1/10s fixed-window")
			r.Key, r.DenyStatus = keyfuncs.Header("X-Key"), status
			r.Access = keyfuncs.MustAccess(keyfuncs.Lists{
				Allow: keyfuncs.Callers{Keys: []string{"carol"}}, Deny: keyfuncs.Callers{Keys: []string{"mallory"}},
			})
			b.serve(app{limiter: b.limiter(r)})

			// Neither of the two on the lists takes a unit.
			b.everyForm("X-Key: mallory", b.denial("a", status))
			b.steps(
				step{0, "X-Key: carol", b.passed("ok")},
				step{0, "X-Key: carol", b.passed("ok")},
				step{0, "X-Key: bob", b.passed("ok").with(rate(0, 1, 0, 10))},
				step{0, "X-Key: bob", b.refusal("a", ten).with(rate(0, 1, 0, 10))},
			)
		})
	}
}

func skip(b *bench) {
	b.serve(app{limiter: b.limiter(b.rule("a", "1/10s fixed-window")), skip: true})
	b.steps(
		step{0, "X-Skip: 1", b.passed("ok")},
		step{0, "", b.passed("ok").with(rate(0, 1, 0, 10))},
		step{0, "", b.refusal("a", ten).with(rate(0, 1, 0, 10))},
		step{0, "X-Skip: 1", b.passed("ok")},
	)
}

func skipThatPanics(b *bench) {
	b.serve(app{limiter: b.limiter(b.rule("a", "1/10s fixed-window")), skip: true})
	b.steps(
		step{0, "X-Skip: panic", b.passed("ok").with(rate(0, 1, 0, 10))},
		step{0, "X-Skip: panic", b.refusal("a", ten).with(rate(0, 1, 0, 10))},
	)
}

// explain answers with the outcome of the admission.
func explain(o ownAnswer) func(turn, *limiter.Admission) error {
	return func(x turn, a *limiter.Admission) error {
		return x.answer(o, fmt.Sprintf("%s by %q", a.Outcome(), a.Violated()))
	}
}

func ownRefusal(b *bench) {
	b.serve(app{
		limiter: b.limiter(b.rule("a", "1/10s fixed-window")),
		refused: explain(ownRefused), failed: explain(ownFailed),
	})
	b.steps(step{0, "", b.passed("ok").with(rate(0, 1, 0, 10))})
	for range 2 {
		b.everyForm("", b.own(ownRefused, `refused by ["a"]`).with(rate(0, 1, 0, 10), b.comeAgain(ten)))
	}
}

func ownFailure(b *bench) {
	b.serve(app{limiter: b.closed("1/10s fixed-window"), refused: explain(ownRefused), failed: explain(ownFailed)})
	b.store.broken.Store(true)
	b.steps(step{0, "", b.own(ownFailed, `failed by []`).with(b.comeAgain(second))})
}

func silentFunctions(b *bench) {
	nothing := func(turn, *limiter.Admission) error { return nil }
	b.serve(app{limiter: b.closed("1/10s fixed-window"), refused: nothing, failed: nothing})
	b.steps(
		step{0, "", b.passed("ok").with(rate(0, 1, 0, 10))},
		step{0, "", b.refusal("a", ten).with(rate(0, 1, 0, 10))},
	)
	b.store.broken.Store(true)
	b.steps(step{0, "", b.failure(second)})
}

// askAgain has the handler reset, take and peek what the middleware counts.
func askAgain(b *bench) {
	user := b.rule("a", "5/10s fixed-window")
	user.Key = b.userKey()
	l := b.limiter(user)
	b.serve(app{limiter: l, handler: func(x turn) error {
		res, err := l.TakeRequest(x.Request())
		if err != nil {
			return err
		}
		list, err := l.PeekRequest(x.Request())
		if err != nil {
			return err
		}

		// The last unit but one resets the count, so that the next request finds it fresh.
		left := list[0].Decision.Remaining
		if left == 1 {
			err = l.ResetRequest(x.Request())
		}
		if err != nil {
			return err
		}
		return x.say(fmt.Sprintf("%t, %d left", res.Allowed(), left))
	}})

	b.steps(
		step{0, "X-User: ann", b.passed("true, 3 left").with(rate(0, 5, 4, 10))},
		step{0, "X-User: ann", b.passed("true, 1 left").with(rate(0, 5, 2, 10))},
		step{0, "X-User: ann", b.passed("true, 3 left").with(rate(0, 5, 4, 10))},
		step{0, "X-User: bob", b.passed("true, 3 left").with(rate(0, 5, 4, 10))},
	)
}
