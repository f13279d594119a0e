package fibermw_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/fibermw"
	"github.com/headgate/headgate/internal/test/gatetest"
	"github.com/headgate/headgate/limiter"
)

// body is a stream that waits before it ends, and can be closed.
type body struct {
	io.Reader
	reading, more, closed chan struct{}
	first                 sync.Once
}

func newBody(text string) *body {
	return &body{Reader: strings.NewReader(text),
		reading: make(chan struct{}), more: make(chan struct{}), closed: make(chan struct{})}
}

func (b *body) Read(p []byte) (int, error) {
	b.first.Do(func() { close(b.reading) })
	<-b.more
	return b.Reader.Read(p)
}

func (b *body) Close() error {
	close(b.closed)
	return nil
}

func dial(t *testing.T, addr string) (conn net.Conn, answers *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// ask sends a GET over a connection that is closed after the answer.
func ask(t *testing.T, addr string) (answer *bufio.Reader) {
	t.Helper()
	conn, answer := dial(t, addr)
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestHoldLeavesStreamUnchanged(t *testing.T) {
	rows := map[string]struct {
		send   func(*fiber.Ctx, io.Reader) error
		length int64
	}{
		// fasthttp sends a body without a length in chunks, and one with it as it is.
		"of unknown length": {func(c *fiber.Ctx, r io.Reader) error { return c.SendStream(r) }, -1},
		"of known length":   {func(c *fiber.Ctx, r io.Reader) error { return c.SendStream(r, 10) }, 10},
		"limited": {func(c *fiber.Ctx, r io.Reader) error {
			return c.SendStream(&io.LimitedReader{R: r, N: 10})
		}, 10},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			s, stream := newStore(), newBody("0123456789")
			l := newLimiter(t, s, "1 concurrent ttl=1m")
			app := newApp(fiber.Config{})
			app.Use(fibermw.New(l), func(c *fiber.Ctx) error { return row.send(c, stream) })

			answer := ask(t, listen(t, app))
			// The handler has returned and the body is being sent: it holds the lease.
			<-stream.reading
			gatetest.WantLeft(t, l, 0)

			close(stream.more)

			response, err := http.ReadResponse(answer, nil)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(response.Body)
			if err != nil || string(text) != "0123456789" || response.ContentLength != row.length {
				t.Errorf("got %q of length %d, %v", text, response.ContentLength, err)
			}

			// The lease ends with the body.
			s.release(t)
			gatetest.WantLeft(t, l, 1)
			if name != "limited" { // a reader that cannot be closed
				<-stream.closed
			}
		})
	}
}

func TestHoldNotForPlainBody(t *testing.T) {
	s := newStore()
	l := newLimiter(t, s, "1 concurrent ttl=1m")
	app := newApp(fiber.Config{})
	app.Use(fibermw.New(l), func(c *fiber.Ctx) error { return c.SendString("ok") })
	call(app, peer, "GET", "/") // its answer is never sent
	s.release(t)
	gatetest.WantLeft(t, l, 1)
}

func TestHoldKeepsConnectionAlive(t *testing.T) {
	s := newStore()
	l := newLimiter(t, s, "1 concurrent ttl=1m")
	app := newApp(fiber.Config{})
	app.Use(fibermw.New(l), func(c *fiber.Ctx) error { return c.SendStream(strings.NewReader("text")) })

	conn, answers := dial(t, listen(t, app))
	// Three answers over one connection: the stream that is held is no reason to close it.
	for range 3 {
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(answers, nil)
		if err != nil || response.StatusCode != 200 {
			t.Fatalf("%+v, %v", response, err)
		}
		if _, err := io.ReadAll(response.Body); err != nil {
			t.Fatal(err)
		}
		s.release(t)
	}
}

func TestHoldOfSeveralLimiters(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector would release forgotten leases
	one, two, stream := newStore(), newStore(), newBody("text")
	first, second := newLimiter(t, one, "1 concurrent ttl=1m"), newLimiter(t, two, "1 concurrent ttl=1m")
	app := newApp(fiber.Config{})
	app.Use(fibermw.New(first), fibermw.New(second), func(c *fiber.Ctx) error { return c.SendStream(stream) })

	answer := ask(t, listen(t, app))
	// Both leases last as long as the body.
	<-stream.reading
	gatetest.WantLeft(t, first, 0)
	gatetest.WantLeft(t, second, 0)

	close(stream.more)
	if _, err := io.ReadAll(answer); err != nil {
		t.Fatal(err)
	}

	// Each limiter has its lease back, by the one end of the stream.
	one.release(t)
	two.release(t)
}

func TestHoldEndsAfterError(t *testing.T) {
	s, stream := newStore(), newBody("text")
	l := newLimiter(t, s, "1 concurrent ttl=1m")
	app := newApp(fiber.Config{})
	// The error replaces the stream that was set before, so it is never read to its end.
	app.Use(fibermw.New(l), func(c *fiber.Ctx) error {
		if err := c.SendStream(stream); err != nil {
			return err
		}
		return fiber.ErrTeapot
	})

	answer := ask(t, listen(t, app))
	response, err := http.ReadResponse(answer, nil)
	if err != nil || response.StatusCode != fiber.StatusTeapot {
		t.Fatalf("%+v, %v", response, err)
	}

	// It is closed instead, and the lease ends with that.
	<-stream.closed
	s.release(t)
}

// fasthttp answers a request that asks for its connection to be closed and
// forgets that the handler has hijacked it.
func TestHoldEndsWithoutHijack(t *testing.T) {
	s := newStore()
	l := newLimiter(t, s, "1 concurrent ttl=1m")
	app := newApp(fiber.Config{})
	app.Use(fibermw.New(l), func(c *fiber.Ctx) error {
		c.Context().Hijack(func(net.Conn) { t.Error("the connection was hijacked") })
		return c.SendString("ok")
	})

	answer := ask(t, listen(t, app))
	if _, err := io.ReadAll(answer); err != nil {
		t.Fatal(err)
	}

	// Nothing reports it to the limiter, so the lease ends when the collector finds it forgotten.
	for start := time.Now(); len(s.refunded) == 0; runtime.GC() {
		if time.Since(start) > testTimeout {
			t.Fatalf("the lease is held %s later", testTimeout)
		}
	}
}

// RefundIf is called with the status before the body is read.
func TestRefundBeforeStream(t *testing.T) {
	s, stream := newStore(), newBody("text")
	l := newLimiter(t, s, "5/1m", func(r *limiter.Rule) { r.RefundIf = func(status int) bool { return status == 200 } })
	app := newApp(fiber.Config{})
	app.Use(fibermw.New(l), func(c *fiber.Ctx) error { return c.SendStream(stream) })

	ask(t, listen(t, app))
	// The refund is there though not a byte of the body has been read.
	s.release(t)

	close(stream.more)
	<-stream.closed
}

func TestWaitUserContextDeadline(t *testing.T) {
	// Waits of an hour, and a context of a minute: the second request cannot have its turn in time.
	l := newLimiter(t, newStore(), "1/1h", func(r *limiter.Rule) { r.OnLimit = limiter.Wait(core.MaxBooking) })
	app := newApp(fiber.Config{})
	app.Use(func(c *fiber.Ctx) error {
		ctx, cancel := context.WithTimeout(c.UserContext(), time.Minute)
		defer cancel()
		c.SetUserContext(ctx)
		return c.Next()
	}, fibermw.New(l), func(c *fiber.Ctx) error { return c.SendString("ok") })

	for i, want := range []int{200, 429} {
		if got := call(app, peer, "GET", "/").Response.StatusCode(); got != want {
			t.Errorf("request %d: %d, want %d", i, got, want)
		}
	}
}
