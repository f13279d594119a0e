package rpcspec

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rpc"
	"github.com/headgate/headgate/limiter"
)

var waiting = []spec{
	{"a call waits for the slot that it has booked", booked},
	{"a call is refused at once if its deadline comes before its turn", tooLate},
	{"closing the limiter ends waits", closing},
	{"a client that leaves gives its slot back", leaving},
	{"a call waits until a lease is released", handedOn},
	{"a call that finds no room to wait", noRoom},
}

// booked waits for 600 ms of real time once.
func booked(b *bench) {
	const period = 300 * time.Millisecond
	r := b.rule("a", "1/300ms")
	r.OnLimit = limiter.Wait(2 * period)
	l := b.limiter(r)
	b.serve(App{Limiter: l})
	slots := map[string]string{
		"x-ratelimit-limit": "1", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1800000001",
		"ratelimit-policy": `"a";q=1`, "ratelimit": `"a";r=0;t=1`,
	}
	b.steps(step{0, "", text("ok").with(slots)})
	b.reserve(l)
	start := time.Now()
	b.steps(step{0, "", text("ok").with(slots)})
	if took := time.Since(start); took < 2*period {
		b.Errorf("let in after %s", took)
	}
	b.steps(step{0, "", refusal("a", 3*period).with(slots)}) // the clock stands still at the first
	if n := len(b.store.booked); n != 2 {
		b.Errorf("%d slots were booked ahead, want 2", n)
	}
}

// reserve books a slot. While slots are booked far ahead, calls that wait book so too.
func (b *bench) reserve(l *limiter.Limiter) {
	b.Helper()
	if _, err := l.Reserve(b.Context(), "127.0.0.1", 1); err != nil {
		b.Fatal(err)
	}
}

// patient returns a limiter with a slot every ten minutes, of which two have been taken.
func (b *bench) patient() *limiter.Limiter {
	b.Helper()
	r := b.rule("a", "1/10m")
	r.OnLimit = limiter.Wait(core.MaxBooking)
	l := b.limiter(r)
	b.serve(App{Limiter: l})
	b.ask("")
	b.reserve(l)
	<-b.store.booked
	return l
}

func tooLate(b *bench) {
	l := b.patient()
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	if got := b.client.Say(ctx, nil, "ok"); got.Code != rpc.ResourceExhausted || got.RetryAfter != 20*time.Minute {
		b.Errorf("got\n%s", got)
	}
	if got := b.left(l).RetryAfter; got != 20*time.Minute {
		b.Errorf("the next has to wait %s, want 20m", got)
	}
}

func closing(b *bench) {
	l := b.patient()
	waits := b.later(b.Context(), "")
	await(b, "the booking", b.store.booked)
	l.Close()
	if got := await(b, "the answer", waits); got.Code != rpc.ResourceExhausted || got.RetryAfter != 20*time.Minute {
		b.Errorf("got\n%s", got)
	}
	if got := b.left(l).RetryAfter; got != 20*time.Minute {
		b.Errorf("the next has to wait %s, want 20m", got)
	}
}

func leaving(b *bench) {
	l := b.patient()
	ctx, leave := context.WithCancel(b.Context())
	waits := b.later(ctx, "")
	await(b, "the booking", b.store.booked)
	if got := b.left(l).RetryAfter; got != 30*time.Minute {
		b.Errorf("with one in the queue the next has to wait %s, want 30m", got)
	}
	leave()
	await(b, "the end of the call", waits)
	await(b, "the slot is given back", b.store.refunded)
	if got := b.left(l).RetryAfter; got != 20*time.Minute {
		b.Errorf("the next has to wait %s, want 20m", got)
	}
}

// waitsForLease calls, and returns when the call waits for the lease: it is refused when
// it arrives, and asks again while it waits.
func (b *bench) waitsForLease() <-chan Answer {
	b.Helper()
	for len(b.store.refused) > 0 {
		<-b.store.refused
	}
	answer := b.later(b.Context(), "")
	await(b, "the refusal", b.store.refused)
	await(b, "the next refusal", b.store.refused)
	return answer
}

// handedOn has a call wait until the one before has ended, in each of its ways.
func handedOn(b *bench) {
	r := b.rule("lease", "1 concurrent ttl=1m")
	r.OnLimit = limiter.Wait(core.MaxBooking)
	entered, ends := make(chan struct{}), make(chan ending)
	b.serve(App{Limiter: b.limiter(r), Say: func(_ context.Context, text string) (string, error) {
		entered <- struct{}{}
		return text, (<-ends).end(b)
	}})
	last := b.later(b.Context(), "")
	await(b, "the handler", entered)
	for _, e := range endings()[:3] {
		next := b.waitsForLease()
		ends <- e
		b.equal(await(b, "the answer", last), e.want.with(leasePairs(0)), "%s", e.name)
		await(b, "the next handler", entered)
		last = next
	}
	ends <- endings()[0]
	b.equal(await(b, "the answer", last), free, "the last")
}

func noRoom(b *bench) {
	end, pair := after(second)
	full := Answer{Message: `too many requests wait already for "lease"` + end, RetryAfter: second, Rules: []string{"lease"}}
	for status, code := range map[int]rpc.Code{0: rpc.Unavailable, 429: rpc.ResourceExhausted} {
		for _, own := range []bool{false, true} {
			b.row(fmt.Sprint(status, own), func(b *bench) {
				r := b.rule("lease", "1 concurrent ttl=1m")
				r.OnLimit = limiter.Wait(core.MaxBooking)
				g := newGate()
				app := App{Limiter: b.configured(limiter.Config{Rules: []limiter.Rule{r}, MaxWaiters: 1, QueueFullStatus: status}),
					Say: func(_ context.Context, text string) (string, error) {
						g.pass()
						return text, nil
					}}
				want := full
				want.Code = code
				if own {
					app.Refused, app.Failed = b.explain(9), b.explain(10)
					want = failed(map[int]rpc.Code{0: 10, 429: 9}[status], `queue_full by ["lease"]`)
				}
				b.serve(app)
				first := b.later(b.Context(), "")
				await(b, "the handler", g.entered)
				next := b.waitsForLease()
				b.steps(step{0, "", want.with(pair)})
				g.leave <- struct{}{}
				b.equal(await(b, "the answer", first), free, "the first")
				await(b, "the next handler", g.entered)
				g.leave <- struct{}{}
				b.equal(await(b, "the answer", next), free, "the second")
			})
		}
	}
}
