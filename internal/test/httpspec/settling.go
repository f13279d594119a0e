package httpspec

import (
	"context"

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
	return b.configured(limiter.Config{Rules: []limiter.Rule{tokens, b.rule("lease", "1 concurrent ttl=1m")}, KeepResult: true})
}

// report settles the request of the context, which a stream may outlive.
func (b *bench) report(ctx context.Context, used int64) {
	if err := limiter.FromContext(ctx).Settle(ctx, map[string]int64{"tokens": used}); err != nil {
		b.Error(err)
	}
}

// settledHowever has one step of the store at the end of each request, which refunds or
// debits tokens and releases the lease.
func settledHowever(b *bench) {
	for name, h := range kinds {
		if b.NoRanges && name == "a content" || name == "a hijack" {
			continue
		}
		for _, used := range []int64{0, 3, 5, 9} {
			b.row(name, func(b *bench) {
				l := b.estimated()
				b.serve(App{Limiter: l, Handler: func(x Exchange) error {
					b.report(x.Context(), used)
					b.wantLeft(l, 5)
					return h(x)
				}})
				b.ask("GET /")
				b.released()
				b.wantLeft(l, 10-used)
				select {
				case <-b.store.refunded:
					b.Error("the end of the request took two steps")
				default:
				}
			})
		}
	}
}

// settledByLeaving has a handler that sends until sending fails.
func settledByLeaving(b *bench) {
	l, reported := b.estimated(), make(chan struct{})
	b.serve(App{Limiter: l, Handler: func(x Exchange) error {
		ctx := x.Context()
		return x.Stream("text/event-stream", func(send func(string) error) error {
			defer close(reported)
			defer b.report(ctx, 8)
			for {
				if err := send("data: 1\n\n"); err != nil {
					return nil
				}
			}
		})
	}})
	response := b.open("GET /")
	if _, err := response.Body.Read(make([]byte, 1)); err != nil {
		b.Fatal(err)
	}
	response.Body.Close()
	await(b, "the report", reported)
	b.released()
	b.wantLeft(l, 2)
}
