package ginmw_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/ginmw"
	"github.com/headgate/headgate/internal/test/gatetest"
)

// chain returns a function that sends one request to an engine with the middleware.
func chain(middleware ...gin.HandlerFunc) func() {
	e := engine(func(c *gin.Context) { c.Status(http.StatusOK) }, middleware...)
	r := httptest.NewRequest(http.MethodGet, "/users/1", nil)
	w := serverWriter{http.Header{}}
	return func() {
		clear(w.header)
		e.ServeHTTP(w, r)
	}
}

func BenchmarkWithout(b *testing.B) { benchmark(b, chain()) }

func BenchmarkWith(b *testing.B) {
	benchmark(b, chain(ginmw.New(gatetest.ByAddress(b, "1000000000/1m"))))
}

func BenchmarkRefused(b *testing.B) {
	answer := chain(ginmw.New(gatetest.ByAddress(b, "1/1h")))
	answer()
	benchmark(b, answer)
}

func benchmark(b *testing.B, answer func()) {
	b.ReportAllocs()
	for b.Loop() {
		answer()
	}
}

// serverWriter allocates nothing, and counts as the writer of a server of net/http.
type serverWriter struct{ header http.Header }

func (w serverWriter) Header() http.Header         { return w.header }
func (w serverWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w serverWriter) WriteHeader(int)             {}

var recorded = httptest.NewRecorder()

func (serverWriter) Unwrap() http.ResponseWriter { return recorded }
