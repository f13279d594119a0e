package echov5mw_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate/adapters/echov5mw"
	"github.com/headgate/headgate/internal/test/gatetest"
	"github.com/headgate/headgate/limiter"
)

var errOwn = errors.New("own")

// coded is an error of a program that says which status it has.
type coded int

func (c coded) Error() string   { return "coded" }
func (c coded) StatusCode() int { return int(c) }

func TestStatusOfError(t *testing.T) {
	teapot := echo.NewHTTPError(http.StatusTeapot, "")
	rows := map[string]struct {
		handler echo.HandlerFunc
		want    int
	}{
		"an HTTPError": {func(*echo.Context) error { return teapot }, 418},

		// The outermost status is the one that Echo's error handler sends.
		"one inside":          {func(*echo.Context) error { return echo.NewHTTPError(400, "").Wrap(teapot) }, 400},
		"one that is wrapped": {func(*echo.Context) error { return fmt.Errorf("own: %w", teapot) }, 418},

		"one without a status":  {func(*echo.Context) error { return echo.NewHTTPError(0, "") }, 500},
		"a sentinel":            {func(*echo.Context) error { return echo.ErrNotFound }, 404},
		"a sentinel that wraps": {func(*echo.Context) error { return echo.ErrUnauthorized.Wrap(errOwn) }, 401},
		"an error with a code":  {func(*echo.Context) error { return coded(402) }, 402},
		"any error":             {func(*echo.Context) error { return errOwn }, 500},

		// What is sent before the error, or before another answer, is what the client has.
		"after an answer": {func(c *echo.Context) error { c.NoContent(202); return teapot }, 202},
		"after two":       {func(c *echo.Context) error { c.NoContent(202); c.NoContent(500); return nil }, 202},
		"a status that is set before the body": {func(c *echo.Context) error {
			r, err := echo.UnwrapResponse(c.Response())
			if err != nil {
				return err
			}
			r.Status = 203
			_, err = r.Write([]byte("text"))
			return err
		}, 203},
		"no answer": {func(*echo.Context) error { return nil }, 200},
	}

	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			var recorded int
			l := limited(t, "9/1m", func(r *limiter.Rule) {
				r.RefundIf = func(status int) bool {
					recorded = status
					return false
				}
			})

			e := echo.New()
			e.Use(echov5mw.New(l))
			e.GET("/", row.handler)

			// The limiter has to see what the client does.
			if seen := call(e, "/").Code; recorded != row.want || seen != row.want {
				t.Errorf("recorded %d, seen %d, want %d", recorded, seen, row.want)
			}
		})
	}
}

func TestErrorUnchanged(t *testing.T) {
	wrapped := fmt.Errorf("own: %w", errOwn)
	for _, limit := range []string{"9/1m", "9 concurrent ttl=1m"} {
		var got error
		e := echo.New()

		// Middleware around the limiter finds the very error of the handler, neither wrapped nor
		// copied.
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error {
				got = next(c)
				return got
			}
		}, echov5mw.New(limited(t, limit)))

		e.GET("/", func(*echo.Context) error { return wrapped })
		if call(e, "/"); got != wrapped {
			t.Errorf("%s: %v", limit, got)
		}
	}
}

// head answers HEAD by a handler for GET as Echo 5.3 does: it says that the answer has
// been sent, and sends its status later.
type head struct {
	http.ResponseWriter
	status int
}

func (h *head) WriteHeader(status int) {
	h.status = status
	h.commit(true)
}

func (h *head) commit(sent bool) {
	if r, err := echo.UnwrapResponse(h.ResponseWriter); err == nil {
		r.Committed = sent
	}
}

func (h *head) Unwrap() http.ResponseWriter { return h.ResponseWriter }

func heading(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		h := &head{ResponseWriter: c.Response()}
		c.SetResponse(h)
		err := next(c)
		c.SetResponse(h.ResponseWriter)
		h.commit(false)
		c.Response().WriteHeader(h.status)
		return err
	}
}

// A log-in that refunds those that succeed would otherwise not count passwords that are
// tried by HEAD.
func TestStatusOfHead(t *testing.T) {
	l := limited(t, "9/1h", func(r *limiter.Rule) {
		r.RefundIf = func(status int) bool { return status < 400 }
	})
	e := echo.New()
	e.GET("/", func(c *echo.Context) error { return c.NoContent(http.StatusUnauthorized) }, heading, echov5mw.New(l))
	if got := call(e, "/").Code; got != http.StatusUnauthorized {
		t.Errorf("answered %d", got)
	}
	gatetest.WantLeft(t, l, 8)
}
