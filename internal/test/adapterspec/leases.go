package adapterspec

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/limiter"
)

var leases = []spec{
	{"a lease is held until the handler has returned", heldByHandler},
	{"a panic frees the lease", func(b *bench) { freed(b, byPanic(b)) }},
	{"an error frees the lease", func(b *bench) { freed(b, byError(b)) }},
	{"a handler renews its lease", renewed},
	{"a lost lease ends the context of its handler", lostLease},
	{"a panic goes on as it is", panicGoesOn},
	{"a stream whose client leaves frees the lease", freedByLeaving},
}

func heldByHandler(b *bench) {
	g := newGate()
	b.serve(app{limiter: b.one(), handler: g.handler()})

	for range 2 {
		first := b.later(b.Context(), "")
		await(b, "the handler", g.entered)
		b.everyForm("", b.busy())
		g.leave <- struct{}{}
		b.equal(await(b, "the answer", first), b.free(), "the first")
		b.released()
	}
}

// freed ends requests of each form in the same way, and then lets one in.
func freed(b *bench, e ending) {
	next := make(chan handler, 1)
	b.serve(app{limiter: b.one(), handler: func(x turn) error { return (<-next)(x) }})

	// How a framework answers its own errors in the other forms is not known.
	for range 3 {
		for _, f := range b.forms() {
			if !f.ownErrors {
				continue
			}
			next <- e.handler
			b.equal(f.ask(""), f.as(e.want.with(leaseHeaders(0))), "%s", f.name)
			b.released()
		}
	}

	next <- ok
	b.steps(step{0, "", b.free()})
}

func renewed(b *bench) {
	b.serve(app{limiter: b.one(), handler: func(x turn) error {
		if held, err := limiter.FromContext(x.Context()).Renew(x.Context()); !held || err != nil {
			b.Errorf("held %t, %v", held, err)
		}
		return ok(x)
	}})
	for range 2 {
		b.steps(step{0, "", b.free()})
		b.released()
	}
}

// lostLease has a store for each request: a renewal that was under way may take the lease of
// the first anew after its release, and gives it back only then.
func lostLease(b *bench) {
	for i, f := range b.forms() {
		b.row(f.name, func(b *bench) {
			rules := []limiter.Rule{b.rule("lease", "1 concurrent ttl=100ms")}
			l := b.configured(limiter.Config{Rules: rules, CancelOnLostLease: true})
			b.serve(app{limiter: l, handler: func(x turn) error {
				// The lease is lost because the store cannot renew it.
				b.store.broken.Store(true)
				defer b.store.broken.Store(false)
				select {
				case <-x.Context().Done():
				case <-b.Context().Done():
				}
				if err := context.Cause(x.Context()); !errors.Is(err, limiter.ErrLeaseLost) {
					b.Errorf("the cause is %v", err)
				}
				return ok(x)
			}})

			f := b.forms()[i]
			want := b.free().with(map[string]string{"X-Ratelimit-Reset": fmt.Sprint(epoch + 1)})
			b.equal(f.ask(""), f.as(want), "%s", f.name)
			b.released()
		})
	}
}

// panicGoesOn has more panics than units. Each gives its unit back, because rules see
// a panic as an error of the server and because a lease ends with its request.
func panicGoesOn(b *bench) {
	refunding, lease := b.rule("a", "5/1m fixed-window"), b.rule("a", "5 concurrent ttl=1m")
	refunding.RefundIf = b.refundIf(panicked)
	for name, r := range map[string]limiter.Rule{"refund": refunding, "lease": lease} {
		for _, value := range []any{"boom", errors.New("boom")} {
			b.row(fmt.Sprintf("%s %T", name, value), func(b *bench) { panicWith(b, r, value) })
		}
	}
}

func panicWith(b *bench, r limiter.Rule, value any) {
	recovered := make(chan any, 1)
	l := b.limiter(r)
	b.serve(app{
		limiter:   l,
		handler:   func(turn) error { panic(value) },
		recovered: func(v any) { recovered <- v },
	})

	// The value is that which the handler panicked with, not one that wraps it.
	forms := b.forms()
	for i := range 7 {
		forms[i%len(forms)].ask("")
		if got := await(b, "the panic", recovered); got != value {
			b.Errorf("recovered %v, want %v", got, value)
		}
		b.released()
		b.wantLeft(l, 5)
	}
}

func freedByLeaving(b *bench) {
	leave := b.openEndless(b.one(), nil)
	b.steps(step{0, "", b.busy()})
	leave()
	b.released()
	b.steps(step{0, "", b.free()})
}
