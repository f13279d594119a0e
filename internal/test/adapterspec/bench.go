package adapterspec

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

// patience bounds every wait of a test.
const patience = time.Minute

const (
	second = time.Second
	ten    = 10 * time.Second
)

var silent = slog.New(slog.DiscardHandler)

// A bench is one framework over one store, for one test.
type bench struct {
	*testing.T
	transport
	open   opener
	stores makeStore
	clock  *clock
	store  *observedStore
}

func newBench(t *testing.T, open opener, stores makeStore) *bench {
	c := &clock{}
	c.set(0)
	return &bench{T: t, transport: open(t), open: open, stores: stores, clock: c, store: observe(stores(t, c))}
}

// row runs f as a subtest, on a bench of its own.
func (b *bench) row(name string, f func(*bench)) {
	b.Helper()
	b.Run(name, func(t *testing.T) { f(newBench(t, b.open, b.stores)) })
}

// rule returns a rule that counts by the peer.
func (b *bench) rule(name, limit string) limiter.Rule {
	return limiter.Rule{Name: name, Limit: core.MustParseLimit(limit), Key: keyfuncs.RemoteIP}
}

// limiter returns a limiter over the store of the bench.
func (b *bench) limiter(rules ...limiter.Rule) *limiter.Limiter {
	b.Helper()
	return b.configured(limiter.Config{Rules: rules})
}

// configured returns a limiter over the store of the bench.
func (b *bench) configured(c limiter.Config) *limiter.Limiter {
	b.Helper()
	return b.over(b.store, c)
}

// over returns a limiter on another store than that of the bench.
func (b *bench) over(s core.Store, c limiter.Config) *limiter.Limiter {
	b.Helper()
	c.Store = s
	if c.Logger == nil {
		c.Logger = silent
	}
	l, err := limiter.New(c)
	if err != nil {
		b.Fatal(err)
	}
	return l
}

// one returns a limiter that lets one request in at a time.
func (b *bench) one() *limiter.Limiter { return b.limiter(b.rule("lease", "1 concurrent ttl=1m")) }

// peek returns the decision about the client under the first rule, without a take.
func (b *bench) peek(l *limiter.Limiter) core.Decision {
	b.Helper()
	list, err := l.Peek(b.Context(), "127.0.0.1")
	if err != nil {
		b.Error(err)
		return core.Decision{}
	}
	return list[0].Decision
}

// wantLeft fails the test unless the client has n units left under the first rule.
func (b *bench) wantLeft(l *limiter.Limiter, n int64) {
	b.Helper()
	if got := b.peek(l).Remaining; got != n {
		b.Errorf("%d left, want %d", got, n)
	}
}

// serve starts the app.
func (b *bench) serve(a app) {
	b.Helper()
	b.start(a)
}

// send sends a request and reads the answer.
func (b *bench) send(fields string) Answer {
	b.Helper()
	return b.ask(b.Context(), fields)
}

// later sends a request without waiting for the answer.
func (b *bench) later(ctx context.Context, fields string) <-chan Answer {
	b.Helper()
	answers := make(chan Answer, 1)
	go func() { answers <- b.ask(ctx, fields) }()
	return answers
}

// A step is a request, its time and the expected answer.
type step struct {
	at     time.Duration
	fields string
	want   Answer
}

// steps takes one step after the other.
func (b *bench) steps(list ...step) {
	b.Helper()
	for i, s := range list {
		b.clock.set(s.at)
		b.equal(b.send(s.fields), s.want, "step %d, %q at %s", i, s.fields, s.at)
	}
}

// everyForm sends a request in each form. All have the answer.
func (b *bench) everyForm(fields string, want Answer) {
	b.Helper()
	for _, f := range b.forms() {
		b.equal(f.ask(fields), f.as(want), "%s, %q", f.name, fields)
	}
}

func (b *bench) equal(got, want Answer, format string, args ...any) {
	b.Helper()
	if got.String() != want.String() {
		b.Errorf(format+": got\n%s\nwant\n%s", append(args, got, want)...)
	}
}

// released waits until the store has released the lease of a request.
func (b *bench) released() {
	b.Helper()
	await(b, "the release", b.store.refunded)
}

// await receives a value from c, and fails the test if none comes.
func await[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()

	select {
	case v := <-c:
		return v
	case <-timer.C:
		t.Fatalf("%s: not within %s", what, patience)
		panic("unreachable")
	}
}

// ok is the handler of an app without one.
func ok(x turn) error { return x.say("ok") }

func fail(turn) error { return errors.New("boom") }

// sayDegraded answers "cheap" to a degraded request and "good" to others.
func sayDegraded(x turn) error {
	if limiter.Degraded(x.Context()) {
		return x.say("cheap")
	}
	return x.say("good")
}

// A gate stops a handler until the test lets it go on.
type gate struct{ entered, leave chan struct{} }

func newGate() gate { return gate{make(chan struct{}), make(chan struct{})} }

// pass is called by the handler.
func (g gate) pass() {
	g.entered <- struct{}{}
	<-g.leave
}

// handler returns a handler that answers "ok" when it has passed the gate.
func (g gate) handler() handler {
	return func(x turn) error {
		g.pass()
		return ok(x)
	}
}

// A journal is a log that requests may write to while the test reads it.
type journal struct{ test.Log }

// logger writes lines without the time.
func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}
