package echov5mw_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate/adapters/echov5mw"
	"github.com/headgate/headgate/internal/test/gatetest"
)

// through is middleware that does nothing. Echo up to 5.2 makes the handlers of all
// middleware for each request.
func through(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error { return next(c) }
}

// chain returns a function that sends one request to a server with the middleware.
func chain(t testing.TB, middleware echo.MiddlewareFunc) func() {
	e := echo.New()
	e.Use(middleware)
	e.GET("/login", func(c *echo.Context) error { return c.NoContent(http.StatusOK) })
	r := get(t, "/login")
	r.RemoteAddr = "192.0.2.1:1234"
	w := serverWriter{plain{http.Header{}}}
	return func() {
		clear(w.header)
		e.ServeHTTP(w, r)
	}
}

func BenchmarkWithout(b *testing.B) { benchmark(b, chain(b, through)) }

func BenchmarkWith(b *testing.B) {
	benchmark(b, chain(b, echov5mw.New(gatetest.ByAddress(b, "1000000000/1m"))))
}

func BenchmarkRefused(b *testing.B) {
	answer := chain(b, echov5mw.New(gatetest.ByAddress(b, "1/1h")))
	answer()
	benchmark(b, answer)
}

func benchmark(b *testing.B, answer func()) {
	b.ReportAllocs()
	for b.Loop() {
		answer()
	}
}

// serverWriter counts as the writer of a server of net/http.
type serverWriter struct{ plain }

var recorded = httptest.NewRecorder()

func (serverWriter) Unwrap() http.ResponseWriter { return recorded }
