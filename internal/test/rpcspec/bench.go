package rpcspec

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

// patience bounds every wait of a test.
const patience = time.Minute

var silent = slog.New(slog.DiscardHandler)

// bench is one framework over one store, for one test.
type bench struct {
	*testing.T
	Framework
	stores makeStore
	clock  *clock
	store  *observedStore
	client Client
}

func newBench(t *testing.T, f Framework, stores makeStore) *bench {
	c := &clock{}
	c.set(0)
	return &bench{T: t, Framework: f, stores: stores, clock: c, store: observe(stores(t, c))}
}

// row runs f as a subtest, on a bench of its own.
func (b *bench) row(name string, f func(*bench)) {
	b.Helper()
	b.Run(name, func(t *testing.T) { f(newBench(t, b.Framework, b.stores)) })
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

// left returns the decision about the client under the first rule, without a take.
func (b *bench) left(l *limiter.Limiter) core.Decision {
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
	if got := b.left(l).Remaining; got != n {
		b.Errorf("%d left, want %d", got, n)
	}
}

// echo is the Chat of an App without one.
func echo(_ context.Context, s Stream) error {
	for {
		text, err := s.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Send(text); err != nil {
			return err
		}
	}
}

// serve starts the app.
func (b *bench) serve(a App) {
	b.Helper()
	if a.Say == nil {
		a.Say = func(_ context.Context, text string) (string, error) { return text, nil }
	}
	if a.Chat == nil {
		a.Chat = echo
	}
	b.client = b.Serve(b, a)
}

// metadata returns the names and values of lines.
func (b *bench) metadata(lines string) (list []string) {
	b.Helper()
	for line := range strings.Lines(lines) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if !ok {
			b.Fatalf("%q is no metadata", line)
		}
		list = append(list, name, value)
	}
	return list
}

// ask calls Say with "ok" and the metadata.
func (b *bench) ask(lines string) Answer {
	b.Helper()
	return b.client.Say(b.Context(), b.metadata(lines), "ok")
}

// chat calls Chat with the metadata.
func (b *bench) chat(ctx context.Context, lines string) ClientStream {
	b.Helper()
	s, err := b.client.Chat(ctx, b.metadata(lines))
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// say sends a text and receives the answer to it.
func (b *bench) say(s ClientStream, text string) {
	b.Helper()
	if err := s.Send(text); err != nil {
		b.Fatal(err)
	}
	if got, err := s.Recv(); got != text || err != nil {
		b.Fatalf("received %q, %v; want %q", got, err, text)
	}
}

// step is a call of Say, its time, its metadata and the expected answer.
type step struct {
	at       time.Duration
	metadata string
	want     Answer
}

// steps takes one step after the other.
func (b *bench) steps(list ...step) {
	b.Helper()
	for i, s := range list {
		b.clock.set(s.at)
		b.equal(b.ask(s.metadata), s.want, "step %d, %q at %s", i, s.metadata, s.at)
	}
}

func (b *bench) equal(got, want Answer, format string, args ...any) {
	b.Helper()
	if got.String() != want.String() {
		b.Errorf(format+": got\n%s\nwant\n%s", append(args, got, want)...)
	}
}

// later calls Say without waiting for the answer.
func (b *bench) later(ctx context.Context, lines string) <-chan Answer {
	b.Helper()
	metadata, answers := b.metadata(lines), make(chan Answer, 1)
	go func() { answers <- b.client.Say(ctx, metadata, "ok") }()
	return answers
}

// await receives a value from c, and fails the test if none comes.
func await[T any](b *bench, what string, c <-chan T) T {
	b.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v := <-c:
		return v
	case <-timer.C:
		b.Fatalf("%s: not within %s", what, patience)
		panic("unreachable")
	}
}

// released waits until the store has released the lease of a call.
func (b *bench) released() {
	b.Helper()
	await(b, "the release", b.store.refunded)
}

// journal is a log that calls may write to while the test reads it.
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
