package httpspec

import (
	"context"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

var waiting = []spec{
	{"a request waits for the slot that it has booked", booked},
	{"closing the limiter ends waits", closing},
	{"a client that leaves gives its slot back", leaving},
}

// slots returns the headers for one slot in a period of less than a second.
func slots(reset string) map[string]string {
	return map[string]string{
		"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1800000001",
		"Ratelimit-Policy": `"a";q=1`, "Ratelimit": `"a";r=0;t=` + reset,
	}
}

// booked waits for 100 ms of real time once.
func booked(b *bench) {
	const period = 100 * time.Millisecond
	r := b.rule("a", "1/100ms")
	r.OnLimit = limiter.Wait(period)
	b.serve(App{Limiter: b.limiter(r)})
	b.steps(step{0, "GET /", Text(200, "ok").with(slots("1"))})
	start := time.Now()
	b.steps(step{0, "GET /", Text(200, "ok").with(slots("1"))})
	if took := time.Since(start); took < period {
		b.Errorf("let in after %s", took)
	}
	b.steps(step{0, "GET /", refusal("a", 1).with(slots("1"))})
	if n := len(b.store.booked); n != 1 {
		b.Errorf("%d slots were booked ahead, want 1", n)
	}
}

// patient returns a limiter with one slot an hour, after the first has been taken.
func (b *bench) patient() *limiter.Limiter {
	b.Helper()
	r := b.rule("a", "1/1h")
	r.OnLimit = limiter.Wait(core.MaxBooking)
	l := b.limiter(r)
	b.serve(App{Limiter: l})
	b.ask("GET /")
	return l
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
	if got := await(b, "the answer", waits); got.Status != 429 || got.Header["Retry-After"] != "3600" {
		b.Errorf("got\n%s", got)
	}
	if got := b.next(l); got != time.Hour {
		b.Errorf("the next has to wait %s, want 1h", got)
	}
}

func leaving(b *bench) {
	l := b.patient()
	ctx, leave := context.WithCancel(b.Context())
	waits := b.later(ctx, "GET /")
	await(b, "the booking", b.store.booked)
	if got := b.next(l); got != 2*time.Hour {
		b.Errorf("with one in the queue the next has to wait %s, want 2h", got)
	}
	leave()
	await(b, "the end of the request", waits)
	if b.BlindToLeaving {
		l.Close() // which ends the wait
	}
	await(b, "the slot is given back", b.store.refunded)
	if got := b.next(l); got != time.Hour {
		b.Errorf("the next has to wait %s, want 1h", got)
	}
}
