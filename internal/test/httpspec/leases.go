package httpspec

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/headgate/headgate/limiter"
)

var leases = []spec{
	{"a lease is held until the handler has returned", heldByHandler},
	{"a panic frees the lease", freedByPanic},
	{"an error frees the lease", freedByError},
	{"a handler renews its lease", renewed},
	{"a lost lease ends the context of its handler", lostLease},
	{"a panic goes on as it is", panicGoesOn},
	{"a stream holds the lease until it ends", heldByStream},
	{"a stream whose client leaves frees the lease", freedByLeaving},
	{"a connection that was taken over holds the lease until it is closed", heldByConnection},
}

// ranges holds for frameworks that can serve contents other than files.
var ranges = []spec{{"a content is served in ranges under a lease", contentUnderLease}}

// gate stops a handler until the test lets it go on.
type gate struct{ entered, leave chan struct{} }

func newGate() gate { return gate{make(chan struct{}), make(chan struct{})} }

// pass is called by the handler.
func (g gate) pass() {
	g.entered <- struct{}{}
	<-g.leave
}

func (b *bench) inFlight(h Handler) {
	b.Helper()
	b.serve(App{Limiter: b.limiter(b.rule("lease", "1 concurrent ttl=1m")), Handler: h})
}

// switched answers each request by the next handler that the test sends.
func switched(next <-chan Handler) Handler {
	return func(x Exchange) error { return (<-next)(x) }
}

func ok(x Exchange) error { return x.Reply(200, "ok") }

// served carries out steps, and waits after each until the lease of its request is
// released.
func (b *bench) served(steps ...step) {
	b.Helper()
	for _, s := range steps {
		b.steps(s)
		b.released()
	}
}

// released waits until the store has released the lease of a request.
func (b *bench) released() {
	b.Helper()
	await(b, "the release", b.store.refunded)
}

var (
	busy = refusal("lease", 60).with(leaseHeaders(0))
	free = Text(200, "ok").with(leaseHeaders(0))
)

func heldByHandler(b *bench) {
	g := newGate()
	b.inFlight(func(x Exchange) error {
		g.pass()
		return ok(x)
	})
	for range 2 {
		first := b.later(b.Context(), "GET /")
		await(b, "the handler", g.entered)
		b.steps(step{0, "GET /", busy})
		g.leave <- struct{}{}
		b.equal(await(b, "the answer", first), free, "the first")
		b.released()
	}
}

func freedByPanic(b *bench) { freed(b, kinds["a panic"], b.Panics) }
func freedByError(b *bench) { freed(b, kinds["an error"], b.Errs) }

func renewed(b *bench) {
	b.inFlight(func(x Exchange) error {
		if held, err := limiter.FromContext(x.Context()).Renew(x.Context()); !held || err != nil {
			b.Errorf("held %t, %v", held, err)
		}
		return ok(x)
	})
	b.served(step{0, "GET /", free}, step{0, "GET /", free})
}

func lostLease(b *bench) {
	l := b.configured(limiter.Config{Rules: []limiter.Rule{b.rule("lease", "1 concurrent ttl=100ms")}, CancelOnLostLease: true})
	b.serve(App{Limiter: l, Handler: func(x Exchange) error {
		b.store.broken.Store(true)
		defer b.store.broken.Store(false)
		select {
		case <-x.Context().Done():
		case <-b.Context().Done():
		}
		if err := context.Cause(x.Context()); !errors.Is(err, limiter.ErrLeaseLost) {
			b.Errorf("the cause is %v", err)
		}
		return ok(x)
	}})
	b.steps(step{0, "GET /", free.with(map[string]string{"X-Ratelimit-Reset": fmt.Sprint(epoch + 1)})})
}

// panicGoesOn has more panics than units. Each gives its unit back, because rules see
// a panic as a 500 and because a lease ends with its request.
func panicGoesOn(b *bench) {
	refunding, lease := b.rule("a", "5/1m fixed-window"), b.rule("a", "5 concurrent ttl=1m")
	refunding.RefundIf = func(status int) bool { return status == http.StatusInternalServerError }
	for name, r := range map[string]limiter.Rule{"refund": refunding, "lease": lease} {
		for _, value := range []any{"boom", errors.New("boom")} {
			b.row(fmt.Sprintf("%s %T", name, value), func(b *bench) { panicWith(b, r, value) })
		}
	}
}

func panicWith(b *bench, r limiter.Rule, value any) {
	recovered := make(chan any, 1)
	l := b.limiter(r)
	b.serve(App{Limiter: l, Handler: func(Exchange) error { panic(value) }, Recovered: func(v any) { recovered <- v }})
	for range 7 {
		answer := b.ask("GET /")
		select {
		case got := <-recovered:
			if got != value {
				b.Errorf("recovered %v, want %v", got, value)
			}
		default:
			b.Fatalf("no panic but\n%s", answer)
		}
		b.released()
		b.wantLeft(l, 5)
	}
}

func freed(b *bench, h Handler, want Answer) {
	next := make(chan Handler, 1)
	b.inFlight(switched(next))
	for range 3 {
		next <- h
		b.served(step{0, "GET /", want.with(leaseHeaders(0))})
	}
	next <- ok
	b.steps(step{0, "GET /", free})
}

func heldByStream(b *bench) {
	for _, contentType := range []string{Plain, "text/event-stream"} {
		g := newGate()
		next := make(chan Handler, 1)
		b.inFlight(switched(next))
		next <- func(x Exchange) error {
			return x.Stream(contentType, func(send func(string) error) error {
				if err := send("data: 1\n\n"); err != nil {
					return err
				}
				g.pass()
				return send("data: 2\n\n")
			})
		}
		response := b.open("GET /")
		first := make([]byte, len("data: 1\n\n"))
		if _, err := io.ReadFull(response.Body, first); err != nil {
			b.Fatal(err)
		}
		await(b, "the first part has been sent", g.entered)
		b.steps(step{0, "GET /", busy})
		g.leave <- struct{}{}
		rest, err := io.ReadAll(response.Body)
		if err != nil {
			b.Fatal(err)
		}
		want := Typed(200, contentType, "data: 1\n\ndata: 2\n\n").streamed().with(leaseHeaders(0))
		b.equal(answerOf(response, string(first)+string(rest)), want, "the stream")
		b.released()
		next <- ok
		b.steps(step{0, "GET /", free})
		b.released()
	}
}

// freedByLeaving has a handler that sends until sending fails.
func freedByLeaving(b *bench) {
	next := make(chan Handler, 1)
	b.inFlight(switched(next))
	next <- func(x Exchange) error {
		return x.Stream("text/event-stream", func(send func(string) error) error {
			for {
				if err := send("data: 1\n\n"); err != nil {
					return nil
				}
			}
		})
	}
	response := b.open("GET /")
	if _, err := response.Body.Read(make([]byte, 1)); err != nil {
		b.Fatal(err)
	}
	b.steps(step{0, "GET /", busy})
	response.Body.Close()
	b.released()
	next <- ok
	b.steps(step{0, "GET /", free})
}

// heldByConnection upgrades to a protocol that sends every line back.
func heldByConnection(b *bench) {
	next := make(chan Handler, 1)
	b.inFlight(switched(next))
	next <- func(x Exchange) error { return x.Hijack(func(c net.Conn) { _, _ = io.Copy(c, c) }) }
	conn := b.dial()
	if err := b.request("GET /\nConnection: Upgrade\nUpgrade: echo").Write(conn); err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewReader(conn)
	response, err := http.ReadResponse(lines, nil)
	if err != nil || response.StatusCode != 101 || response.Header.Get("Upgrade") != "echo" {
		b.Fatalf("the upgrade: %+v, %v", response, err)
	}
	for range 2 {
		talk(b, conn, lines)
		b.steps(step{0, "GET /", busy})
	}
	conn.Close()
	b.released()
	next <- ok
	b.steps(step{0, "GET /", free})
}

func talk(t testing.TB, conn io.Writer, lines *bufio.Reader) {
	t.Helper()
	if _, err := io.WriteString(conn, "ping\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := lines.ReadString('\n'); err != nil || line != "ping\n" {
		t.Fatalf("got %q, %v", line, err)
	}
}

func contentUnderLease(b *bench) {
	b.inFlight(func(x Exchange) error { return x.ServeContent("0123456789") })
	file := map[string]string{"Accept-Ranges": "bytes", "Last-Modified": Changed.UTC().Format(http.TimeFormat)}
	part := map[string]string{"Content-Range": "bytes 2-4/10"}
	b.served(
		step{0, "GET /", Text(200, "0123456789").with(leaseHeaders(0), file)},
		step{0, "GET /\nRange: bytes=2-4", Text(206, "234").with(leaseHeaders(0), file, part)},
		step{0, "HEAD /", Text(200, "0123456789").with(leaseHeaders(0), file).forHEAD()},
		step{0, "GET /", Text(200, "0123456789").with(leaseHeaders(0), file)},
	)
}
