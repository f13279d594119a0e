package httpspec

import (
	"context"
	"errors"
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

// slots returns the headers for one slot in a period of less than a second.
func slots(reset string) map[string]string {
	return map[string]string{
		"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1800000001",
		"Ratelimit-Policy": `"a";q=1`, "Ratelimit": `"a";r=0;t=` + reset,
	}
}

// booked waits for 600 ms of real time once.
func booked(b *bench) {
	const period = 600 * time.Millisecond
	r := b.rule("a", "1/300ms")
	r.OnLimit = limiter.Wait(period)
	l := b.limiter(r)
	b.serve(App{Limiter: l})
	b.steps(step{0, "GET /", Text(200, "ok").with(slots("1"))})
	b.reserve(l)
	start := time.Now()
	b.steps(step{0, "GET /", Text(200, "ok").with(slots("1"))})
	if took := time.Since(start); took < period {
		b.Errorf("let in after %s", took)
	}
	b.steps(step{0, "GET /", refusal("a", 1).with(slots("1"))})
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
	b.serve(App{Limiter: l})
	b.ask("GET /")
	b.reserve(l)
	<-b.store.booked
	return l
}

// waitsForLease sends a request, and returns when it waits for the lease: it is refused
// when it arrives, and asks again while it waits.
func (b *bench) waitsForLease(text string) <-chan Answer {
	b.Helper()
	for len(b.store.refused) > 0 {
		<-b.store.refused
	}
	answer := b.later(b.Context(), text)
	await(b, "the refusal", b.store.refused)
	await(b, "the next refusal", b.store.refused)
	return answer
}

// handedOn has a request wait until the one before has ended, in each of its ways.
func handedOn(b *bench) {
	r := b.rule("lease", "1 concurrent ttl=1m")
	r.OnLimit = limiter.Wait(core.MaxBooking)
	entered, ends := make(chan struct{}), make(chan Handler)
	b.serve(App{Limiter: b.limiter(r), Handler: func(x Exchange) error {
		entered <- struct{}{}
		return (<-ends)(x)
	}})
	last := b.later(b.Context(), "GET /")
	await(b, "the handler", entered)
	for _, row := range []struct {
		name string
		end  Handler
		want Answer
	}{
		{"a return", ok, Text(200, "ok")},
		{"a panic", func(Exchange) error { panic("boom") }, b.Panics},
		{"an error", func(Exchange) error { return errors.New("boom") }, b.Errs},
	} {
		next := b.waitsForLease("GET /")
		ends <- row.end
		b.equal(await(b, "the answer", last), row.want.with(leaseHeaders(0)), "%s", row.name)
		await(b, "the next handler", entered)
		last = next
	}
	ends <- ok
	b.equal(await(b, "the answer", last), Text(200, "ok").with(leaseHeaders(0)), "the last")
}

func noRoom(b *bench) {
	const problem = `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
		`"title":"Request cannot be satisfied due to temporary server capacity constraints","status":%d,` +
		`"detail":"Too many requests wait already. Retry after 1 second.","violated-policies":["lease"]}`
	header := map[string]string{"Retry-After": "1", "Cache-Control": "no-store"}
	for name, row := range map[string]struct {
		status int
		own    bool
		want   Answer
	}{
		"503":               {0, false, Typed(503, "application/problem+json", fmt.Sprintf(problem, 503))},
		"429":               {429, false, Typed(429, "application/problem+json", fmt.Sprintf(problem, 429))},
		"503, own function": {503, true, Text(521, "queue_full by lease")},
		"429, own function": {429, true, Text(420, "queue_full by lease")},
	} {
		b.row(name, func(b *bench) {
			r := b.rule("lease", "1 concurrent ttl=1m")
			r.OnLimit = limiter.Wait(core.MaxBooking)
			g := newGate()
			app := App{Limiter: b.configured(limiter.Config{Rules: []limiter.Rule{r}, MaxWaiters: 1, QueueFullStatus: row.status}),
				Handler: func(x Exchange) error {
					g.pass()
					return ok(x)
				}}
			if row.own {
				app.Refused, app.Failed = explain(420), explain(521)
			}
			b.serve(app)
			first := b.later(b.Context(), "GET /")
			await(b, "the handler", g.entered)
			second := b.waitsForLease("GET /")
			b.steps(step{0, "GET /", row.want.with(header)})
			g.leave <- struct{}{}
			b.equal(await(b, "the answer", first), Text(200, "ok").with(leaseHeaders(0)), "the first")
			await(b, "the next handler", g.entered)
			g.leave <- struct{}{}
			b.equal(await(b, "the answer", second), Text(200, "ok").with(leaseHeaders(0)), "the second")
		})
	}
}

// next returns how long a new request would have to wait.
func (b *bench) next(l *limiter.Limiter) time.Duration {
	b.Helper()
	list, err := l.Peek(b.Context(), "127.0.0.1")
	if err != nil {
		b.Fatal(err)
	}
	return list[0].Decision.RetryAfter
}

func closing(b *bench) {
	l := b.patient()
	waits := b.later(b.Context(), "GET /")
	await(b, "the booking", b.store.booked)
	l.Close()
	if got := await(b, "the answer", waits); got.Status != 429 || got.Header["Retry-After"] != "1200" {
		b.Errorf("got\n%s", got)
	}
	if got := b.next(l); got != 20*time.Minute {
		b.Errorf("the next has to wait %s, want 20m", got)
	}
}

func leaving(b *bench) {
	l := b.patient()
	ctx, leave := context.WithCancel(b.Context())
	waits := b.later(ctx, "GET /")
	await(b, "the booking", b.store.booked)
	if got := b.next(l); got != 30*time.Minute {
		b.Errorf("with one in the queue the next has to wait %s, want 30m", got)
	}
	leave()
	await(b, "the end of the request", waits)
	if b.BlindToLeaving {
		l.Close() // which ends the wait
	}
	await(b, "the slot is given back", b.store.refunded)
	if got := b.next(l); got != 20*time.Minute {
		b.Errorf("the next has to wait %s, want 20m", got)
	}
}
