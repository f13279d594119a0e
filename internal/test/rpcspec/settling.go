package rpcspec

import (
	"context"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

var settling = []spec{
	{"what a handler reports is settled, however the call ends", settledHowever},
	{"a stream whose client leaves is settled by what it has sent", settledByLeaving},
}

// estimated returns a limiter that charges each call 5 of 10 tokens and a lease.
func (b *bench) estimated() *limiter.Limiter {
	tokens := b.rule("tokens", "10/1m fixed-window")
	tokens.Cost = func(core.Request) int64 { return 5 }
	return b.configured(limiter.Config{Rules: []limiter.Rule{tokens, b.rule("lease", "1 concurrent ttl=1m")}, KeepResult: true})
}

// report settles the call of the context.
func (b *bench) report(ctx context.Context, used int64) {
	if err := limiter.FromContext(ctx).Settle(ctx, map[string]int64{"tokens": used}); err != nil {
		b.Error(err)
	}
}

// settledHowever has one step of the store at the end of each call, which refunds or
// debits tokens and releases the lease.
func settledHowever(b *bench) {
	for _, e := range endings()[:4] {
		for _, used := range []int64{0, 3, 5, 9} {
			b.row(e.name, func(b *bench) {
				l := b.estimated()
				b.serve(App{Limiter: l, Say: func(ctx context.Context, text string) (string, error) {
					b.report(ctx, used)
					b.wantLeft(l, 5)
					return text, e.end(b)
				}, Chat: func(ctx context.Context, _ Stream) error {
					b.report(ctx, used)
					return e.end(b)
				}})
				b.ask("")
				b.settled(l, 10-used)
				if used == 9 {
					return // too few are left for another call
				}
				b.chat(b.Context(), "").End()
				b.settled(l, 10-2*used)
			})
		}
	}
}

// settled waits for the one step that ends a call.
func (b *bench) settled(l *limiter.Limiter, left int64) {
	b.Helper()
	b.released()
	b.wantLeft(l, left)
	select {
	case <-b.store.refunded:
		b.Error("the end of the call took two steps")
	default:
	}
}

// settledByLeaving has a handler that sends until sending fails.
func settledByLeaving(b *bench) {
	l := b.estimated()
	b.serve(App{Limiter: l, Chat: func(ctx context.Context, s Stream) error {
		defer b.report(ctx, 8)
		for {
			if err := s.Send(data); err != nil {
				return err
			}
		}
	}})
	ctx, leave := context.WithCancel(b.Context())
	s := b.chat(ctx, "")
	if _, err := s.Recv(); err != nil {
		b.Fatal(err)
	}
	leave()
	b.released()
	b.wantLeft(l, 2)
}
