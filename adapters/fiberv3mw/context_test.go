package fiberv3mw_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/timeout"

	"github.com/headgate/headgate/adapters/fiberv3mw"
	"github.com/headgate/headgate/internal/test/gatetest"
	"github.com/headgate/headgate/limiter"
)

// A handler may pass on the fiber.Ctx itself as a context.
func TestCtxCarriesTheResult(t *testing.T) {
	around := newLimiter(t, newStore(), "9 concurrent ttl=1m")
	l := newLimiter(t, newStore(), "1/1h", func(r *limiter.Rule) { r.OnLimit = limiter.Degrade })

	app := fiber.New()
	var asked, degraded int

	app.Use(fiberv3mw.New(around), fiberv3mw.New(l), func(c fiber.Ctx) error {
		within, cancel := context.WithCancel(c)
		defer cancel()

		// The fiber.Ctx, a context derived from it, and the one of the request: a program may use
		// any of them.
		for _, ctx := range []context.Context{c, within, c.Context()} {
			asked++
			if limiter.Degraded(ctx) {
				degraded++
			}
		}
		return nil
	})

	// The first is within the limit, and all three say so. The second is degraded.
	for i, want := range []int{0, 3} {
		asked, degraded = 0, 0
		call(app, peer, "GET", "/")
		if asked != 3 || degraded != want {
			t.Errorf("request %d: %d of %d degraded, want %d", i, degraded, asked, want)
		}
	}
}

// ctx is the context of a program.
type ctx struct{ fiber.DefaultCtx }

func (*ctx) User() string { return "alice" }

func TestCustomCtx(t *testing.T) {
	s := newStore()
	l := newLimiter(t, s, "5/1m", func(r *limiter.Rule) {
		r.Key = fiberv3mw.Key(func(c fiber.Ctx) (string, bool) { return c.(*ctx).User(), true })
		r.RefundIf = func(status int) bool { return status == 202 }
	})

	// A program's own type of context, which its key functions expect to get back.
	app := fiber.NewWithCustomCtx(func(app *fiber.App) fiber.CustomCtx {
		return &ctx{DefaultCtx: *fiber.NewDefaultCtx(app)}
	})

	app.Use(fiberv3mw.New(l))
	app.Get("/", func(c fiber.Ctx) error { return c.SendStatus(202) })

	if got := call(app, peer, "GET", "/").Response.StatusCode(); got != 202 {
		t.Errorf("answered %d", got)
	}
	if got := s.release(t); got != "alice" {
		t.Errorf("refunded to %q", got)
	}
}

// The handler goes on after the timeout, and answers what nobody receives.
func TestStatusAfterTimeout(t *testing.T) {
	rows := map[string]struct {
		onTimeout fiber.Handler
		want      int
	}{
		"of the error": {nil, http.StatusRequestTimeout},
		"of the program": {func(c fiber.Ctx) error { return c.SendStatus(http.StatusGatewayTimeout) },
			http.StatusGatewayTimeout},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			recorded := make(chan int, 1)
			l := newLimiter(t, newStore(), "9/1m", func(r *limiter.Rule) {
				r.RefundIf = func(status int) bool {
					recorded <- status
					return false
				}
			})

			more, ended := make(chan struct{}), make(chan struct{})
			app := fiber.New()

			// A handler between, which holds the first answer until the one after the timeout is
			// made.
			goOn := func(c fiber.Ctx) error {
				err := c.Next()
				close(more)
				<-ended
				return err
			}

			app.Get("/", fiberv3mw.New(l), goOn, timeout.New(func(c fiber.Ctx) error {
				defer close(ended)
				<-more
				return c.SendStatus(http.StatusAccepted)
			}, timeout.Config{Timeout: time.Millisecond, OnTimeout: row.onTimeout}))

			call(app, peer, "GET", "/")
			if got := <-recorded; got != row.want {
				t.Errorf("recorded %d, want %d", got, row.want)
			}
		})
	}
}

// A stream that a handler has begun is not sent after the timeout.
func TestLeaseEndsWithTimeout(t *testing.T) {
	s := newStore()
	l := newLimiter(t, s, "1 concurrent ttl=1m")

	begun, more, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	app := fiber.New()

	app.Get("/", fiberv3mw.New(l), timeout.New(func(c fiber.Ctx) error {
		defer close(ended)
		err := c.SendStream(strings.NewReader("text"))
		close(begun)
		<-more
		return err
	}, timeout.Config{Timeout: time.Millisecond, OnTimeout: func(c fiber.Ctx) error {
		<-begun // after which only this goroutine uses the request
		c.Status(http.StatusGatewayTimeout)
		return nil
	}}))

	request := call(app, peer, "GET", "/")

	// The lease ends with the timeout, while the first handler still has its stream.
	s.release(t)
	gatetest.WantLeft(t, l, 1)

	close(more)
	<-ended
	runtime.KeepAlive(request) // whose end would release a lease that is held
}

// Fiber answers HEAD by the handlers for GET. A log-in that refunds those that succeed
// counts passwords that are tried so.
func TestStatusOfHead(t *testing.T) {
	l := newLimiter(t, newStore(), "9/1h",
		func(r *limiter.Rule) { r.RefundIf = func(status int) bool { return status < 400 } })
	app := fiber.New()
	app.Get("/", fiberv3mw.New(l), func(c fiber.Ctx) error { return fiber.ErrUnauthorized })
	if got := call(app, peer, "HEAD", "/").Response.StatusCode(); got != http.StatusUnauthorized {
		t.Errorf("answered %d", got)
	}
	gatetest.WantLeft(t, l, 8)
}

// Fiber passes what it cannot read through the middleware of Use, without a route.
func TestRequestThatFiberCannotReadIsCounted(t *testing.T) {
	recorded := make(chan int, 1)
	l := newLimiter(t, newStore(), "9/1h", func(r *limiter.Rule) {
		r.RefundIf = func(status int) bool {
			recorded <- status
			return false
		}
	})

	app := fiber.New(fiber.Config{BodyLimit: 10})
	app.Use(fiberv3mw.New(l), func(c fiber.Ctx) error { return c.Next() })
	app.Post("/", func(fiber.Ctx) error { return nil })
	conn, answers := dial(t, listen(t, app))

	// One byte more than the limit of the body.
	if _, err := io.WriteString(conn,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n01234567890"); err != nil {
		t.Fatal(err)
	}

	answer, err := http.ReadResponse(answers, nil)
	if err != nil || answer.StatusCode != http.StatusRequestEntityTooLarge {
		t.Fatalf("%+v, %v", answer, err)
	}

	// Fiber's own error comes after the middleware, which sees a request without a route.
	if got := <-recorded; got != http.StatusNotFound {
		t.Errorf("recorded %d", got)
	}

	gatetest.WantLeft(t, l, 8)
}

func TestSkipPreflights(t *testing.T) {
	l := newLimiter(t, newStore(), "9/1h")
	app := fiber.New()
	app.Use(fiberv3mw.New(l, fiberv3mw.Config{Skip: fiber.Ctx.IsPreflight}))
	call(app, peer, "OPTIONS", "/", "Origin", "https://a.example", "Access-Control-Request-Method", "PUT")
	gatetest.WantLeft(t, l, 9)
	call(app, peer, "OPTIONS", "/", "Origin", "https://a.example")
	gatetest.WantLeft(t, l, 8)
}
