package echomw_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/echomw"
	"github.com/headgate/headgate/limiter"
)

var errOwn = errors.New("own")

func TestStatusOfError(t *testing.T) {
	teapot := echo.NewHTTPError(http.StatusTeapot)
	// What Echo's error handler will send, as the limiter has to know it before.
	rows := map[string]struct {
		handler echo.HandlerFunc
		want    int
	}{
		"an HTTPError":        {func(echo.Context) error { return teapot }, 418},
		"one inside":          {func(echo.Context) error { return echo.NewHTTPError(400).SetInternal(teapot) }, 418},
		"another inside":      {func(echo.Context) error { return echo.NewHTTPError(400).SetInternal(errOwn) }, 400},
		"one that is wrapped": {func(echo.Context) error { return fmt.Errorf("own: %w", teapot) }, 500},
		"any error":           {func(echo.Context) error { return errOwn }, 500},
		"no route":            {func(echo.Context) error { return echo.ErrNotFound }, 404},
		// What is sent already, or by the handler itself, is the status, whatever error comes after
		// it.
		"after an answer":      {func(c echo.Context) error { c.NoContent(202); return teapot }, 202},
		"answered by the rest": {func(c echo.Context) error { c.Error(teapot); return teapot }, 418},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			var recorded int
			// RefundIf gets what the limiter takes for the status.
			l := limited(t, "9/1m", func(r *limiter.Rule) {
				r.RefundIf = func(status int) bool {
					recorded = status
					return false
				}
			})

			e := echo.New()
			e.Use(echomw.New(l))
			e.GET("/", row.handler)

			// The client sees the same.
			if seen := call(e, "/").Code; recorded != row.want || seen != row.want {
				t.Errorf("recorded %d, seen %d, want %d", recorded, seen, row.want)
			}
		})
	}
}

func TestErrorUnchanged(t *testing.T) {
	wrapped := fmt.Errorf("own: %w", errOwn)
	// Under leases the writer is wrapped, which is another way through the middleware.
	for _, limit := range []string{"9/1m", "9 concurrent ttl=1m"} {
		var got error
		e := echo.New()
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error {
				got = next(c)
				return got
			}
		}, echomw.New(limited(t, limit)))

		e.GET("/", func(echo.Context) error { return wrapped })

		if call(e, "/"); got != wrapped {
			t.Errorf("%s: %v", limit, got)
		}
	}
}
