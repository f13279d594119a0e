package rpcspec

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/limiter"
)

var leases = []spec{
	{"a lease is held until the handler has returned", heldByHandler},
	{"a panic frees the lease", func(b *bench) { freed(b, 2) }},
	{"an error frees the lease", func(b *bench) { freed(b, 1) }},
	{"a handler renews its lease", renewed},
	{"a lost lease ends the context of its handler", lostLease},
	{"a panic goes on as it is", panicGoesOn},
	{"a stream holds the lease until it ends", heldByStream},
	{"a stream whose client leaves frees the lease", freedByLeaving},
}

// gate stops a handler until the test lets it go on.
type gate struct{ entered, leave chan struct{} }

func newGate() gate { return gate{make(chan struct{}), make(chan struct{})} }

// pass is called by the handler.
func (g gate) pass() {
	g.entered <- struct{}{}
	<-g.leave
}

// one returns a limiter that lets one call in at a time.
func (b *bench) one() *limiter.Limiter { return b.limiter(b.rule("lease", "1 concurrent ttl=1m")) }

var (
	busy = refusal("lease", 60*second).with(leasePairs(0))
	free = text("ok").with(leasePairs(0))
)

func heldByHandler(b *bench) {
	g := newGate()
	b.serve(App{Limiter: b.one(), Say: func(_ context.Context, text string) (string, error) {
		g.pass()
		return text, nil
	}})
	for range 2 {
		first := b.later(b.Context(), "")
		await(b, "the handler", g.entered)
		b.steps(step{0, "", busy})
		b.equal(b.chat(b.Context(), "").End(), busy, "a stream")
		g.leave <- struct{}{}
		b.equal(await(b, "the answer", first), free, "the first")
		b.released()
	}
}

// freed ends three calls and three streams in one of the ways.
func freed(b *bench, way int) {
	e := endings()[way]
	b.serve(App{Limiter: b.one(),
		Say:  func(_ context.Context, text string) (string, error) { return text, e.end(b) },
		Chat: func(context.Context, Stream) error { return e.end(b) },
	})
	for range 3 {
		b.steps(step{0, "", e.want.with(leasePairs(0))})
		b.released()
		b.equal(b.chat(b.Context(), "").End(), e.want.with(leasePairs(0)), "a stream")
		b.released()
	}
}

func renewed(b *bench) {
	b.serve(App{Limiter: b.one(), Say: func(ctx context.Context, text string) (string, error) {
		if held, err := limiter.FromContext(ctx).Renew(ctx); !held || err != nil {
			b.Errorf("held %t, %v", held, err)
		}
		return text, nil
	}})
	for range 2 {
		b.steps(step{0, "", free})
		b.released()
	}
}

// lostLease has a key for each call: a renewal that was under way may take the lease of
// the first anew after its release, and gives it back only then.
func lostLease(b *bench) {
	await := func(ctx context.Context, b *bench) {
		b.store.broken.Store(true)
		defer b.store.broken.Store(false)
		select {
		case <-ctx.Done():
		case <-b.Context().Done():
		}
		if err := context.Cause(ctx); !errors.Is(err, limiter.ErrLeaseLost) {
			b.Errorf("the cause is %v", err)
		}
	}
	want := free.with(map[string]string{"x-ratelimit-reset": fmt.Sprint(epoch + 1)})
	config := func(b *bench) *limiter.Limiter {
		return b.configured(limiter.Config{Rules: []limiter.Rule{b.rule("lease", "1 concurrent ttl=100ms")}, CancelOnLostLease: true})
	}
	b.row("a call", func(b *bench) {
		b.serve(App{Limiter: config(b), Say: func(ctx context.Context, text string) (string, error) {
			await(ctx, b)
			return text, nil
		}})
		b.steps(step{0, "", want})
		b.released()
	})
	b.row("a stream", func(b *bench) {
		b.serve(App{Limiter: config(b), Chat: func(ctx context.Context, s Stream) error {
			await(ctx, b)
			return s.Send("ok")
		}})
		b.equal(b.chat(b.Context(), "").End(), want, "a stream")
		b.released()
	})
}

// panicGoesOn has more panics than units. Each gives its unit back, because rules see
// a panic as Internal and because a lease ends with its call.
func panicGoesOn(b *bench) {
	refunding, lease := b.rule("a", "5/1m fixed-window"), b.rule("a", "5 concurrent ttl=1m")
	refunding.RefundIf = b.RefundIf(func(c rpc.Code) bool { return c == rpc.Internal })
	for name, r := range map[string]limiter.Rule{"refund": refunding, "lease": lease} {
		for _, value := range []any{"boom", errors.New("boom")} {
			b.row(fmt.Sprintf("%s %T", name, value), func(b *bench) { panicWith(b, r, value) })
		}
	}
}

func panicWith(b *bench, r limiter.Rule, value any) {
	recovered := make(chan any, 1)
	l := b.limiter(r)
	b.serve(App{Limiter: l, Recovered: func(v any) { recovered <- v },
		Say:  func(context.Context, string) (string, error) { panic(value) },
		Chat: func(context.Context, Stream) error { panic(value) },
	})
	for i := range 7 {
		if i%2 == 0 {
			b.ask("")
		} else {
			b.chat(b.Context(), "").End()
		}
		if got := await(b, "the panic", recovered); got != value {
			b.Errorf("recovered %v, want %v", got, value)
		}
		b.released()
		b.wantLeft(l, 5)
	}
}

func heldByStream(b *bench) {
	b.serve(App{Limiter: b.one()})
	for range 2 {
		s := b.chat(b.Context(), "")
		for range 2 {
			b.say(s, "hello")
			b.steps(step{0, "", busy})
		}
		if err := s.CloseSend(); err != nil {
			b.Error(err)
		}
		b.equal(s.End(), text("").with(leasePairs(0)), "the stream")
		b.released()
		b.steps(step{0, "", free})
		b.released()
	}
}

// data is long, so that few messages fill what HTTP/2 lets a server send unread.
var data = strings.Repeat("data", 16<<10)

// freedByLeaving has a handler that sends until sending fails.
func freedByLeaving(b *bench) {
	b.serve(App{Limiter: b.one(), Chat: func(_ context.Context, s Stream) error {
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
	b.steps(step{0, "", busy})
	leave()
	b.released()
	b.steps(step{0, "", free})
}
