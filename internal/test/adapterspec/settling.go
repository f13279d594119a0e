package adapterspec

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

var settling = []spec{
	{"what a handler reports is settled, however the request ends", settledHowever},
	{"a stream whose client leaves is settled by what it has sent", settledByLeaving},
}

// estimated returns a limiter that charges each request 5 of 10 tokens and a lease.
func (b *bench) estimated() *limiter.Limiter {
	tokens := b.rule("tokens", "10/1m fixed-window")
	tokens.Cost = func(core.Request) int64 { return 5 }
	rules := []limiter.Rule{tokens, b.rule("lease", "1 concurrent ttl=1m")}
	return b.configured(limiter.Config{Rules: rules, KeepResult: true})
}

// report settles the request of the context, which a stream may outlive.
func (b *bench) report(ctx context.Context, used int64) {
	if err := limiter.FromContext(ctx).Settle(ctx, map[string]int64{"tokens": used}); err != nil {
		b.Error(err)
	}
}

func settledHowever(b *bench) {
	for _, e := range b.endings() {
		for _, used := range []int64{0, 3, 5, 9} {
			b.row(fmt.Sprintf("%s, %d used", e.name, used), func(b *bench) { settled(b, e, used) })
		}
	}
}

// settled has one step of the store at the end of each request, which refunds or
// debits tokens and releases the lease.
func settled(b *bench, e ending, used int64) {
	l := b.estimated()
	within := make(chan int64, 1) // what is left while the handler runs
	b.serve(app{limiter: l, handler: func(x turn) error {
		b.report(x.Context(), used)
		b.wantLeft(l, <-within)
		return e.handler(x)
	}})

	left := int64(10)
	for _, f := range b.forms() {
		// A request that the tokens left do not suffice for would be refused.
		if !f.ownErrors || left < 5 {
			continue
		}

		// Only the charge shows before the request ends, not what was reported.
		within <- left - 5
		f.ask("")
		left -= used

		b.released()
		b.wantLeft(l, left)
		select {
		case <-b.store.refunded:
			b.Error("the end of the request took two steps")
		default:
		}
	}
}

func settledByLeaving(b *bench) {
	l, reported := b.estimated(), make(chan struct{})
	leave := b.openEndless(l, func(ctx context.Context) {
		b.report(ctx, 8)
		close(reported)
	})
	leave()
	await(b, "the report", reported)
	b.released()
	b.wantLeft(l, 2)
}
