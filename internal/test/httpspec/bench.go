package httpspec

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

// patience bounds every wait of a test.
const patience = time.Minute

// bench is one framework over one store, for one test.
type bench struct {
	*testing.T
	Framework
	stores makeStore
	clock  *clock
	store  *observedStore
	client *http.Client
	addr   string
}

// newBench returns a bench whose client uses one connection as long as it sends one
// request after another.
func newBench(t *testing.T, f Framework, stores makeStore) *bench {
	c := &clock{}
	c.set(0)
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &bench{
		T: t, Framework: f, stores: stores, clock: c, store: observe(stores(t, c)),
		client: &http.Client{
			Transport:     transport,
			Timeout:       patience,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
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
	c.Store = b.store
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := limiter.New(c)
	if err != nil {
		b.Fatal(err)
	}
	return l
}

// wantLeft fails the test unless the client has n units left under the first rule.
func (b *bench) wantLeft(l *limiter.Limiter, n int64) {
	b.Helper()
	list, err := l.Peek(b.Context(), "127.0.0.1")
	if err != nil {
		b.Error(err)
		return
	}
	if got := list[0].Decision.Remaining; got != n {
		b.Errorf("%d left, want %d", got, n)
	}
}

// serve starts the app. Without a handler it answers "ok".
func (b *bench) serve(a App) {
	b.Helper()
	if a.Handler == nil {
		a.Handler = func(x Exchange) error { return x.Reply(200, "ok") }
	}
	b.addr = b.Serve(b, a)
}

// request returns a request for the text "METHOD /path", with a header in each line
// after the first.
func (b *bench) request(text string) *http.Request {
	b.Helper()
	first, lines, _ := strings.Cut(text, "\n")
	method, path, _ := strings.Cut(first, " ")
	r, err := http.NewRequest(method, "http://"+b.addr+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(lines) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if !ok {
			b.Fatalf("%q is not a header", line)
		}
		r.Header.Add(name, value)
	}
	return r
}

// ask sends a request and reads all of the answer.
func (b *bench) ask(text string) Answer {
	b.Helper()
	got, err := b.exchange(b.request(text))
	if err != nil {
		b.Fatal(err)
	}
	return got
}

func (b *bench) exchange(r *http.Request) (Answer, error) {
	response, err := b.client.Do(r)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answerOf(response, string(body)), err
}

func answerOf(response *http.Response, body string) Answer {
	a := Answer{Status: response.StatusCode, Header: map[string]string{}, Body: body}
	for name, lines := range maps.All(response.Header) {
		a.Header[name] = strings.Join(lines, " | ")
	}
	delete(a.Header, "Date")
	return a
}

// step is a request, its time and the expected answer.
type step struct {
	at   time.Duration
	send string
	want Answer
}

// steps takes one step after the other.
func (b *bench) steps(list ...step) {
	b.Helper()
	for i, s := range list {
		b.clock.set(s.at)
		b.equal(b.ask(s.send), s.want, "step %d, %q at %s", i, s.send, s.at)
	}
}

func (b *bench) equal(got, want Answer, format string, args ...any) {
	b.Helper()
	if got.String() != want.String() {
		b.Errorf(format+": got\n%s\nwant\n%s", append(args, got, want)...)
	}
}

// later sends a request without waiting for the answer.
func (b *bench) later(ctx context.Context, text string) <-chan Answer {
	b.Helper()
	r := b.request(text).WithContext(ctx)
	answers := make(chan Answer, 1)
	go func() {
		a, _ := b.exchange(r) // an error is an answer without a status
		answers <- a
	}()
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

// open sends a request and returns its answer before its body has been read.
func (b *bench) open(text string) *http.Response {
	b.Helper()
	response, err := b.client.Do(b.request(text))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { response.Body.Close() })
	return response
}

// dial connects to the server.
func (b *bench) dial() net.Conn {
	b.Helper()
	conn, err := net.Dial("tcp", b.addr)
	if err != nil {
		b.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return conn
}
