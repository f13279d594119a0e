package adapterspec

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

var waiting = []spec{
	{"a request waits for the slot that it has booked", booked},
	{"closing the limiter ends waits", closing},
	{"a client that leaves gives its slot back", leaving},
	{"a request waits until a lease is released", handedOn},
	{"a request that finds no room to wait", noRoom},
}

// booked waits for 600 ms of real time once.
func booked(b *bench) {
	const period = 300 * time.Millisecond
	r := b.rule("a", "1/300ms")
	r.OnLimit = limiter.Wait(2 * period)
	l := b.limiter(r)
	b.serve(app{limiter: l})

	// The window of a slot is less than a second, and is left out of the list.
	slots := limits(1, 0, 1, `"a";q=1`, `"a";r=0;t=1`)
	b.steps(step{0, "", b.passed("ok").with(slots)})
	b.reserve(l)

	start := time.Now()
	b.steps(step{0, "", b.passed("ok").with(slots)})
	if took := time.Since(start); took < 2*period {
		b.Errorf("let in after %s", took)
	}

	// The clock of the store has stood still, so that a third slot is too far ahead.
	b.steps(step{0, "", b.refusal("a", 3*period).with(slots)})
	if n := len(b.store.booked); n != 2 {
		b.Errorf("%d slots were booked ahead, want 2", n)
	}
}

// reserve books a slot. While slots are booked far ahead, requests that wait book so too.
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
	b.serve(app{limiter: l})
	b.send("")
	b.reserve(l)
	<-b.store.booked
	return l
}

// wantWait fails the test unless a new request would have to wait for d.
func (b *bench) wantWait(l *limiter.Limiter, d time.Duration) {
	b.Helper()
	if got := b.peek(l).RetryAfter; got != d {
		b.Errorf("the next has to wait %s, want %s", got, d)
	}
}

func closing(b *bench) {
	l := b.patient()
	waits := b.later(b.Context(), "")
	await(b, "the booking", b.store.booked)
	l.Close()

	got := await(b, "the answer", waits)
	b.equal(got.withoutLimits(), b.refusal("a", 20*time.Minute), "the request that waited")
	b.wantWait(l, 20*time.Minute)
}

func leaving(b *bench) {
	l := b.patient()
	ctx, leave := context.WithCancel(b.Context())
	waits := b.later(ctx, "")
	await(b, "the booking", b.store.booked)
	b.wantWait(l, 30*time.Minute)

	// A slot that is not given back would keep the next one waiting for ten minutes more.
	leave()
	await(b, "the end of the request", waits)
	if b.blindToLeaving() {
		l.Close() // which ends the wait
	}
	await(b, "the slot is given back", b.store.refunded)
	b.wantWait(l, 20*time.Minute)
}

// waitsForLease sends a request, and returns when it waits for the lease: it is refused
// when it arrives, and asks again while it waits.
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

// waitingLease returns a rule that has requests wait for the one lease.
func (b *bench) waitingLease() limiter.Rule {
	r := b.rule("lease", "1 concurrent ttl=1m")
	r.OnLimit = limiter.Wait(core.MaxBooking)
	return r
}

// handedOn has a request wait until the one before has ended, in each of its ways.
func handedOn(b *bench) {
	entered, ends := make(chan struct{}), make(chan handler)
	b.serve(app{limiter: b.limiter(b.waitingLease()), handler: func(x turn) error {
		entered <- struct{}{}
		return (<-ends)(x)
	}})
	last := b.later(b.Context(), "")
	await(b, "the handler", entered)

	// The next one stands in line before the last one ends.
	for _, e := range []ending{byReturn(b), byPanic(b), byError(b)} {
		next := b.waitsForLease()
		ends <- e.handler
		b.equal(await(b, "the answer", last), e.want.with(leaseHeaders(0)), "%s", e.name)
		await(b, "the next handler", entered)
		last = next
	}

	ends <- ok
	b.equal(await(b, "the answer", last), b.free(), "the last")
}

func noRoom(b *bench) {
	for _, row := range []struct {
		status int
		own    bool
		with   ownAnswer // of own: the default status is one of a failure
	}{{0, false, 0}, {429, false, 0}, {503, true, ownFailed}, {0, true, ownFailed}, {429, true, ownRefused}} {
		b.row(fmt.Sprintf("%d, own function %t", row.status, row.own), func(b *bench) {
			c := limiter.Config{Rules: []limiter.Rule{b.waitingLease()}, MaxWaiters: 1, QueueFullStatus: row.status}
			g := newGate()
			a, want := app{limiter: b.configured(c), handler: g.handler()}, b.queueFull("lease", row.status)
			if row.own {
				a.refused, a.failed = explain(ownRefused), explain(ownFailed)
				want = b.own(row.with, `queue_full by ["lease"]`).with(b.comeAgain(second))
			}
			b.serve(a)

			// One is being served, and one fills the queue.
			first := b.later(b.Context(), "")
			await(b, "the handler", g.entered)
			next := b.waitsForLease()
			b.steps(step{0, "", want})

			g.leave <- struct{}{}
			b.equal(await(b, "the answer", first), b.free(), "the first")
			await(b, "the next handler", g.entered)
			g.leave <- struct{}{}
			b.equal(await(b, "the answer", next), b.free(), "the second")
		})
	}
}
