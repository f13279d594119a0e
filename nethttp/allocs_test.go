//go:build !race

package nethttp_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

// Under the race detector a sync.Pool drops some items.

func TestMiddlewareAllocations(t *testing.T) {
	r := rule("10/1m")
	r.Key = func(r core.Request) (string, bool) { return r.RemoteAddr(), true }
	h := nethttp.New(newLimiter(t, limiter.Config{Store: always{}, Rules: []limiter.Rule{r},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}))(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))

	w, req := serverWriter{&plainWriter{http.Header{}}}, httptest.NewRequest("GET", "/", nil)
	for range 1000 { // the first requests, which are examined for mistakes
		clear(w.header)
		h.ServeHTTP(w, req)
	}

	// Headers take their memory from what is allocated for several requests at once, which is less
	// than one allocation each.
	if got := testing.AllocsPerRun(1000, func() { clear(w.header); h.ServeHTTP(w, req) }); got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}
